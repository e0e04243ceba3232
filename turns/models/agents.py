"""Rows of agents: who answers in a conversation, with which instructions, chat model, tools and limits."""

from typing import Any

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.forms import model_to_dict
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.model_fields import PositiveDurationMsField
from governance.time_formatting import time_text
from turns.models import validation


class Agent(models.Model):
    """Who answers in a conversation. Its `name` is how conversations, turns and other agents call it.

    A blank chat model or limit = the project's setting counts. `tools` lists the names of the tools it may use;
    null = all of them. `approval` can only make a tool's own rule stricter (D1).
    """

    name = models.CharField(
        _("name"),
        max_length=64,
        unique=True,
        validators=[
            RegexValidator(
                r"^[a-z][a-z0-9_-]*\Z",
                _("Lower-case letters, digits, “-” and “_”, beginning with a letter."),
            )
        ],
    )
    description = models.CharField(
        _("description"),
        max_length=200,
        blank=True,
        help_text=_("What it is good for; people and other agents choose by it."),
    )
    samples: "models.JSONField[Any, Any]" = models.JSONField(_("samples"), blank=True, default=list)
    placeholder = models.CharField(
        _("placeholder"),
        max_length=100,
        blank=True,
        help_text=_("Stands in the empty field for a message. Blank = “Message…”."),
    )
    instructions = models.TextField(_("instructions"), blank=True)
    chat_model = models.CharField(
        _("chat model"),
        max_length=200,
        blank=True,
        help_text=_("Blank = the project's chat model."),
    )
    tools: "models.JSONField[Any, Any]" = models.JSONField(
        _("tools"), null=True, blank=True, default=None, help_text=_("Blank = all of them.")
    )
    approval = models.CharField(
        _("approval"),
        max_length=24,
        blank=True,
        choices=[("once_per_conversation", _("once per conversation")), ("always", _("always"))],
        help_text=_("At least this for every tool. Blank = as each tool says."),
    )
    turn_timeout_ms = PositiveDurationMsField(
        _("turn limit"), null=True, blank=True, help_text=_("0 = no limit. Blank = not set here.")
    )
    step_limit = models.PositiveIntegerField(
        _("step limit"), null=True, blank=True, validators=[MinValueValidator(1)]
    )
    max_parallel_calls = models.PositiveIntegerField(
        _("calls at once"), null=True, blank=True, validators=[MinValueValidator(1)]
    )
    token_limit = models.PositiveBigIntegerField(
        _("token limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Tokens that a turn may use in all, in and out. Blank = no limit."),
    )
    is_enabled = models.BooleanField(_("enabled"), default=True)
    is_default = models.BooleanField(
        _("default"), default=False, help_text=_("Answers where no other agent was chosen.")
    )
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    class Meta:
        app_label = "turns"
        verbose_name = _("agent")
        verbose_name_plural = _("agents")
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=Q(is_default=True), name="turns_one_default_agent"
            )
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse an agent that could not answer, in words."""
        validation.check_agent(model_to_dict(self))


class AgentChange(Change):
    """One edit of an agent: who changed which field from what to what, and when (append-only)."""

    subject = "turns.Agent"

    agent_name = models.CharField(_("agent"), max_length=64, db_index=True)

    class Meta(Change.Meta):
        app_label = "turns"
        verbose_name = _("agent change")
        verbose_name_plural = _("agent changes")

    def __str__(self) -> str:
        return f"{self.agent_name} {time_text(self.at)}"

    @classmethod
    def describe_value(cls, name: str, value: object) -> str:
        """Return a field's value as people read it; an agent without a list of tools may use them all."""
        return (
            str(_("all"))
            if name == "tools" and value is None
            else super().describe_value(name, value)
        )

"""Rows of agents: instructions, chat model, tools and limits."""

from typing import Any

from django.contrib.auth.models import Group
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.forms import model_to_dict
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.durations import time_text
from governance.model_fields import DatabaseTimeField, PositiveDurationMsField
from turns.models import validation


class Agent(models.Model):
    """An agent. Conversations, turns and other agents refer to it by its `name`.

    If the chat model or a limit is blank, the project's setting applies. `tools` lists the names of the tools that the
    agent may use; null allows all. `approval` can only make a tool's own rule stricter (D1). If the agent has `groups`,
    only their members and superusers may use it.
    """

    name = models.CharField(
        _("name"),
        max_length=64,
        unique=True,
        validators=[
            RegexValidator(
                r"^[a-z][a-z0-9_-]*\Z",
                _("Lower-case letters, digits, “-” and “_”, starting with a letter."),
            )
        ],
    )
    description = models.CharField(
        _("description"),
        max_length=200,
        blank=True,
        help_text=_(
            "What it is good at. People and other agents use this text to choose an agent."
        ),
    )
    samples: "models.JSONField[Any, Any]" = models.JSONField(_("samples"), blank=True, default=list)
    placeholder = models.CharField(
        _("placeholder"),
        max_length=100,
        blank=True,
        help_text=_("Shown in the empty message field. Blank = “Message…”."),
    )
    instructions = models.TextField(_("instructions"), blank=True)
    chat_model = models.CharField(
        _("chat model"),
        max_length=200,
        blank=True,
        help_text=_("Blank = the project’s chat model."),
    )
    fallback_models: "models.JSONField[Any, Any]" = models.JSONField(
        _("fallback models"), blank=True, default=list
    )
    temperature = models.FloatField(
        _("temperature"),
        null=True,
        blank=True,
        help_text=_(
            "0 to 2. Higher values make answers more varied. Blank = the provider’s default."
        ),
    )
    top_p = models.FloatField(
        _("top-p"),
        null=True,
        blank=True,
        help_text=_(
            "0 to 1: only the most likely words that add up to this share are used. Blank = the provider’s default. Set either this or the temperature."
        ),
    )
    max_tokens = models.PositiveIntegerField(
        _("longest answer"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_(
            "Maximum tokens per answer, including thinking. Blank = the provider’s default."
        ),
    )
    effort = models.CharField(
        _("effort"),
        max_length=8,
        blank=True,
        choices=[
            ("off", _("off")),
            ("minimal", _("minimal")),
            ("low", _("low")),
            ("medium", _("medium")),
            ("high", _("high")),
            ("xhigh", _("very high")),
            ("max", _("max")),
        ],
        help_text=_(
            "How much it thinks before answering. Models without this level use the nearest one. Blank = the provider’s default."
        ),
    )
    stop_sequences: "models.JSONField[Any, Any]" = models.JSONField(
        _("stop sequences"), blank=True, default=list
    )
    parallel_calls = models.BooleanField(
        _("several calls in one answer"),
        null=True,
        blank=True,
        choices=[(True, _("yes")), (False, _("no, one after the other"))],
        help_text=_(
            "Whether an answer may request several tool calls. Blank = the provider’s default."
        ),
    )
    cache_retention = models.CharField(
        _("cache"),
        max_length=4,
        blank=True,
        choices=[
            ("off", _("off")),
            ("5m", _("5 minutes")),
            ("30m", _("30 minutes")),
            ("1h", _("1 hour")),
            ("12h", _("12 hours")),
        ],
        help_text=_(
            "How long the provider caches requests, which makes repeated ones cheaper. Providers without this duration use the nearest one. Blank = the default."
        ),
    )
    media = models.CharField(
        _("files"),
        max_length=16,
        blank=True,
        choices=[
            ("text", _("text only")),
            ("image", _("text and images")),
            ("image_pdf", _("text, images and PDF")),
        ],
        help_text=_(
            "What its chat model can read. Blank = the project’s setting, or what is known about the model."
        ),
    )
    window = models.PositiveIntegerField(
        _("context window"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1_000)],
        help_text=_(
            "Maximum number of tokens in a request and its answer together. Blank = the size known for the model, if any."
        ),
    )
    tools: "models.JSONField[Any, Any]" = models.JSONField(
        _("tools"), null=True, blank=True, default=None, help_text=_("Blank = all tools.")
    )
    approval = models.CharField(
        _("approval"),
        max_length=24,
        blank=True,
        choices=[("once_per_conversation", _("once per conversation")), ("always", _("always"))],
        help_text=_("Minimum for every tool. Blank = the tools’ own rules."),
    )
    turn_timeout_ms = PositiveDurationMsField(
        _("turn limit"),
        null=True,
        blank=True,
        help_text=_("0 = no limit. Blank = the project’s setting."),
    )
    step_limit = models.PositiveIntegerField(
        _("step limit"), null=True, blank=True, validators=[MinValueValidator(1)]
    )
    max_parallel_calls = models.PositiveIntegerField(
        _("concurrent calls"), null=True, blank=True, validators=[MinValueValidator(1)]
    )
    token_limit = models.PositiveBigIntegerField(
        _("token limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Maximum tokens per turn, input and output. Blank = no limit."),
    )
    first_byte_timeout_ms = PositiveDurationMsField(
        _("first byte"),
        null=True,
        blank=True,
        help_text=_("Maximum time until an answer starts. Blank = the project’s setting."),
    )
    idle_timeout_ms = PositiveDurationMsField(
        _("silence"),
        null=True,
        blank=True,
        help_text=_("Maximum pause within an answer. Blank = the project’s setting."),
    )
    request_timeout_ms = PositiveDurationMsField(
        _("whole answer"),
        null=True,
        blank=True,
        help_text=_("Maximum time for one answer. Blank = the project’s setting."),
    )
    groups: "models.ManyToManyField[Any, Any]" = models.ManyToManyField(
        Group,
        through="AgentGroup",
        blank=True,
        related_name="+",
        verbose_name=_("groups"),
        help_text=_(
            "Only members of these groups and superusers may use it. None = everybody. Changes apply to turns that start afterwards."
        ),
    )
    is_enabled = models.BooleanField(_("enabled"), default=True)
    is_default = models.BooleanField(
        _("default"),
        default=False,
        help_text=_(
            "Answers if no agent was chosen. People who may not use it get the first agent by name that they may use."
        ),
    )
    created_at = DatabaseTimeField(_("created at"), auto_now_add=True)
    updated_at = DatabaseTimeField(_("updated at"), auto_now=True)

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
        """Refuse an agent that could not answer, with a message per field."""
        validation.check_agent(model_to_dict(self))


class AgentGroup(models.Model):
    """A group to which an agent is restricted. The group cannot be deleted, because the agent would then be
    unrestricted.
    """

    agent = models.ForeignKey(Agent, models.CASCADE, verbose_name=_("agent"))
    group = models.ForeignKey(Group, models.PROTECT, related_name="+", verbose_name=_("group"))

    class Meta:
        app_label = "turns"
        verbose_name = _("group of an agent")
        verbose_name_plural = _("groups of agents")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["agent", "group"], name="turns_group_of_agent_once")
        ]

    def __str__(self) -> str:
        return f"{self.agent} – {self.group}"


class AgentChange(Change):
    """An edit of an agent, with its user, its time, and the old and new values (append-only)."""

    subject = "turns.Agent"
    kind = "agent"
    named_by = "agent_name"
    confidential = ("instructions",)

    agent_name = models.CharField(_("agent"), max_length=64, db_index=True)

    class Meta(Change.Meta):
        app_label = "turns"
        verbose_name = _("agent change")
        verbose_name_plural = _("agent changes")

    def __str__(self) -> str:
        return f"{self.agent_name} {time_text(self.at)}"

    @classmethod
    def describe_value(cls, name: str, value: object) -> str:
        """Return a field's value as text. If `tools` is None, it means all tools; if `groups` is empty, everybody."""
        if name == "tools" and value is None:
            return str(_("all"))
        if name == "groups" and not value:
            return str(_("everybody"))
        return super().describe_value(name, value)

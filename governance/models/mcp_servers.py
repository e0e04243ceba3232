"""MCP servers whose tools the agents may use (G2)."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now
from django.forms import model_to_dict
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.mcp.specs import Transport
from governance.mcp.validation import check_server
from governance.model_fields import calls_at_once, span


class McpServer(models.Model):
    """An MCP server whose tools the agents may use (G2), and its last known health.

    Secrets are never stored: `headers` maps a header to the environment variable with its value. `environment` lists
    variables that a command gets. The processes that use the server write the health fields.
    """

    name = models.CharField(
        _("name"),
        max_length=32,
        unique=True,
        validators=[
            RegexValidator(
                r"^[a-z0-9][a-z0-9_-]*\Z",
                _(
                    "Write small letters, digits, “_” and “-”; the names of its tools begin with it."
                ),
            )
        ],
    )
    transport = models.CharField(
        _("kind"),
        max_length=8,
        default=Transport.STDIO.value,
        choices=[
            (Transport.STDIO.value, _("a command on this machine (stdio)")),
            (Transport.HTTP.value, _("an address (streamable HTTP)")),
        ],
    )
    command = models.TextField(
        _("command"),
        blank=True,
        help_text=_("The program and its arguments, as “npx -y some-server”. No shell reads them."),
    )
    url = models.CharField(_("address"), max_length=2000, blank=True)
    headers = models.JSONField(
        _("headers"),
        default=dict,
        blank=True,
        help_text=_("“Header: VARIABLE”, one in each line: the variable holds the whole value."),
    )
    environment = models.JSONField(
        _("environment"),
        default=list,
        blank=True,
        help_text=_(
            "Names of variables of this server that the command may see, one in each line."
        ),
    )
    enabled = models.BooleanField(_("in use"), default=True)
    allowed_tools = models.JSONField(
        _("allowed tools"),
        default=list,
        blank=True,
        help_text=_("Names as the server gives them, one in each line. Blank = all of them."),
    )
    trusts_read_only = models.BooleanField(
        _("its word counts on what only reads"),
        default=False,
        help_text=_(
            "Nobody is asked about the tools that the server says only read. Only for servers that you trust as much as"
            " this one: it is the server's word, and nothing proves it."
        ),
    )
    read_only_tools = models.JSONField(
        _("trusted to only read"),
        null=True,
        blank=True,
        default=None,
        help_text=_(
            "Names as the server gives them, one in each line. Blank = all that it says so of now, or in its first list."
            " What it says so of later is asked about until it is added here."
        ),
    )
    timeout_ms = span(
        _("total limit"), _("What its tools declare. 0 = no limit. Blank = not set here.")
    )
    max_running = calls_at_once(
        _("Of all its tools together, in one process. Blank = not set here.")
    )
    prefix = models.CharField(
        _("prefix"),
        max_length=32,
        blank=True,
        help_text=_("Put before the names of its tools. Blank = the server's name and “_”."),
    )
    allow_private = models.BooleanField(
        _("may be on a private network"),
        default=False,
        help_text=_("For addresses: also loopback and the networks that only this machine sees."),
    )
    updated_at = models.DateTimeField(_("changed at"), auto_now=True, db_default=Now())
    last_ok_at = models.DateTimeField(_("well at"), null=True, editable=False)
    last_error = models.CharField(_("last problem"), max_length=500, blank=True, editable=False)
    last_error_at = models.DateTimeField(_("problem at"), null=True, editable=False)
    tools_found = models.JSONField(_("its tools"), default=list, editable=False)

    class Meta:
        app_label = "governance"
        verbose_name = _("MCP server")
        verbose_name_plural = _("MCP servers")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_unwell(self) -> bool:
        """Whether its last problem is later than its last success."""
        if self.last_error_at is None:
            return False
        return self.last_ok_at is None or self.last_error_at > self.last_ok_at

    @property
    def doubted_tools(self) -> list[str]:
        """The tools that the server says only read, and that people are asked about all the same."""
        marked = [tool["name"] for tool in self.tools_found if tool.get("read_only")]
        believed = self.read_only_tools if self.trusts_read_only else []
        return [] if believed is None else [name for name in marked if name not in believed]

    def clean(self) -> None:
        """Refuse a server that could not be connected."""
        check_server(model_to_dict(self))


class McpServerChange(Change):
    """One edit of an MCP server (append-only)."""

    subject = "governance.McpServer"

    server = models.CharField(_("MCP server"), max_length=32)

    class Meta(Change.Meta):
        app_label = "governance"
        verbose_name = _("change of an MCP server")
        verbose_name_plural = _("changes of MCP servers")

"""MCP servers whose tools the agents may use (G2)."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now
from django.forms import model_to_dict
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.mcp.specs import Transport
from governance.mcp.validation import check_server
from governance.model_fields import DatabaseTimeField, calls_at_once, span


class McpServer(models.Model):
    """An MCP server whose tools the agents may use (G2), and its last known health.

    Secrets are never stored. Instead, `headers` maps each header to the environment variable that contains its value,
    and `environment` lists the variables that a command receives. The processes that use the server update the health
    fields.
    """

    name = models.CharField(
        _("name"),
        max_length=32,
        unique=True,
        validators=[
            RegexValidator(
                r"^[a-z0-9][a-z0-9_-]*\Z",
                _(
                    "Use lower-case letters, digits, “_” and “-”. The names of its tools begin with this name."
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
        help_text=_(
            "The program and its arguments, for example “npx -y some-server”. It runs without a shell."
        ),
    )
    url = models.CharField(_("address"), max_length=2000, blank=True)
    headers = models.JSONField(
        _("headers"),
        default=dict,
        blank=True,
        help_text=_(
            "One “Header: VARIABLE” per line. The environment variable contains the whole value."
        ),
    )
    environment = models.JSONField(
        _("environment"),
        default=list,
        blank=True,
        help_text=_(
            "This server's environment variables that the command may see, one name per line."
        ),
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    allowed_tools = models.JSONField(
        _("allowed tools"),
        default=list,
        blank=True,
        help_text=_("Tool names as the server reports them, one per line. Blank = all tools."),
    )
    trusts_read_only = models.BooleanField(
        _("trust its read-only marks"),
        default=False,
        help_text=_(
            "Tools that the server marks as read-only run without approval. Choose this only for servers that you trust as"
            " much as this one, because nothing verifies the marks."
        ),
    )
    read_only_tools = models.JSONField(
        _("trusted read-only tools"),
        null=True,
        blank=True,
        default=None,
        help_text=_(
            "Tool names as the server reports them, one per line. Blank = all tools that it marks as read-only now or, "
            "if it has not connected yet, in the first list that it sends. Tools that it marks later need approval until "
            "you add them here."
        ),
    )
    uses_instructions = models.BooleanField(
        _("agents read its instructions"),
        default=False,
        db_default=False,
        help_text=_(
            "Agents that are offered a tool of this server read its instructions in every request. The server writes "
            "these instructions and can change them, so enable this only for servers that you trust."
        ),
    )
    asks_people = models.BooleanField(
        _("may ask people"),
        default=False,
        db_default=False,
        help_text=_(
            "While a call of this server runs, the server may show the user a form, and it receives the answers. If "
            "this is off, the server is told that it cannot ask. If it is on, a server of the kind “command” runs one "
            "call at a time, unless you set a number of concurrent calls below."
        ),
    )
    timeout_ms = span(
        _("total limit"), _("The limit that its tools declare. 0 = no limit. Blank = not set here.")
    )
    max_running = calls_at_once(
        _("For all its tools together, in one process. Blank = not set here.")
    )
    prefix = models.CharField(
        _("prefix"),
        max_length=32,
        blank=True,
        help_text=_("Added before the names of its tools. Blank = the server's name and “_”."),
    )
    allow_private = models.BooleanField(
        _("may be on a private network"),
        default=False,
        help_text=_("Allows loopback addresses and addresses on private networks."),
    )
    updated_at = DatabaseTimeField(_("changed at"), auto_now=True, db_default=Now())
    last_ok_at = models.DateTimeField(_("last success at"), null=True, editable=False)
    last_error = models.CharField(_("last problem"), max_length=500, blank=True, editable=False)
    last_error_at = models.DateTimeField(_("last problem at"), null=True, editable=False)
    tools_found = models.JSONField(_("tools"), default=list, editable=False)
    instructions_found = models.TextField(
        _("its instructions"), blank=True, db_default="", editable=False
    )

    class Meta:
        app_label = "governance"
        verbose_name = _("MCP server")
        verbose_name_plural = _("MCP servers")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_unwell(self) -> bool:
        """Whether the last problem is later than the last success."""
        if self.last_error_at is None:
            return False
        return self.last_ok_at is None or self.last_error_at > self.last_ok_at

    @property
    def doubted_tools(self) -> list[str]:
        """The tools that the server declares read-only but that still require approval."""
        marked = [tool["name"] for tool in self.tools_found if tool.get("read_only")]
        trusted = self.read_only_tools if self.trusts_read_only else []
        return [] if trusted is None else [name for name in marked if name not in trusted]

    def clean(self) -> None:
        """Raise `ValidationError` if a value is invalid."""
        check_server(model_to_dict(self))


class McpServerChange(Change):
    """One edit of an MCP server (append-only)."""

    subject = "governance.McpServer"
    kind = "mcp_server"
    named_by = "server"
    confidential = ("command", "url", "headers", "environment")

    server = models.CharField(_("MCP server"), max_length=32)

    class Meta(Change.Meta):
        app_label = "governance"
        verbose_name = _("MCP server change")
        verbose_name_plural = _("MCP server changes")

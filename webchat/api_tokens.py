"""API tokens: issued, verified and revoked, with an audit.

A token has 256 random bits, so its plain SHA-256 is a safe hash.
"""

import hashlib
import secrets
from contextlib import suppress
from datetime import timedelta

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, PermissionsMixin
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext as _

from governance import audit
from governance.audit import Changes, Editor
from governance.db import run_in_query_thread, without_lock_wait
from governance.prepared_statements import Select, fields_of
from webchat.conf import app_settings
from webchat.models import ApiToken, ApiTokenChange

PREFIX = "tk_"
SHOWN = 8  # characters that tell tokens apart in a list

ACTIVE = Select(
    lambda sha256: (
        ApiToken.objects.select_related("user").filter(sha256=sha256, revoked_at=None).order_by()
    ),
    **fields_of(ApiToken, "sha256"),
)


@transaction.atomic
def issue(
    *, user: AbstractBaseUser, name: str, by: Editor = None, where: str = ""
) -> tuple[ApiToken, str]:
    """Issue a token for the user. Return its row and the token, which cannot be shown again.

    `by` is who makes it: None is whoever runs code on the server, told by `where`.

    Raises:
        PermissionDenied: it would let somebody act as another one.
    """
    if by is not None and not may_issue_for(user, by=by):
        raise PermissionDenied(_("A token is for yourself. Only a superuser makes one for others."))
    token = PREFIX + secrets.token_urlsafe(32)
    row = ApiToken.objects.create(
        user_id=user.pk, name=name, sha256=_hash(token), start=token[:SHOWN]
    )
    _note(row, action="add", changes={"user": [None, user.get_username()]}, by=by, where=where)
    return row, token


def may_issue_for(user: AbstractBaseUser, *, by: AbstractBaseUser) -> bool:
    """Return whether somebody may issue a token for a user: for themselves, or as a superuser for everybody."""
    return by.pk == user.pk or bool(getattr(by, "is_superuser", False))


@transaction.atomic
def revoke(tokens: QuerySet[ApiToken], *, by: Editor = None, where: str = "") -> int:
    """Revoke tokens; return how many were active."""
    chosen = ApiToken.objects.filter(pk__in=tokens.values("pk"), revoked_at=None)
    good = list(chosen.select_for_update().order_by("pk"))
    for row in good:  # one by one: a signal of each closes the sockets that it has opened
        row.revoked_at = timezone.now()
        row.save(update_fields=["revoked_at"])
        changes: Changes = {"revoked_at": [None, row.revoked_at.isoformat(timespec="seconds")]}
        _note(row, action="change", changes=changes, by=by, where=where)
    return len(good)


def of_unknown_origin() -> QuerySet[ApiToken]:
    """Return the active tokens of superusers whose issuer is unknown.

    Early versions let staff issue tokens for everybody, and recorded no issuer.
    """
    if not issubclass(get_user_model(), PermissionsMixin):
        return ApiToken.objects.none()
    made = ApiTokenChange.objects.filter(token=OuterRef("pk"), action="add")
    return ApiToken.objects.filter(~Exists(made), user__is_superuser=True, revoked_at=None)


def find_user(token: str) -> AbstractBaseUser | None:
    """Return the user of a token, or None if it is unknown or revoked, or its user is inactive."""
    digest = _hash(token)
    row = ACTIVE.first(sha256=digest)
    if row is None or not constant_time_compare(row.sha256, digest) or not row.user.is_active:
        return None
    _touch(row)
    user: AbstractBaseUser = row.user
    return user


find_user_async = run_in_query_thread(find_user)


def bearer_of(header: str) -> str | None:
    """Return the token of an `Authorization` header, or None if it carries none."""
    scheme, _space, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _touch(row: ApiToken) -> None:
    now = timezone.now()
    stale = now - timedelta(seconds=app_settings.TOKEN_TOUCH_INTERVAL)
    if row.last_used_at is None or row.last_used_at < stale:
        unseen = Q(last_used_at=None) | Q(last_used_at__lt=stale)
        with suppress(OperationalError), without_lock_wait():  # the next use notes it
            ApiToken.objects.filter(unseen, pk=row.pk).update(last_used_at=now)


def _note(row: ApiToken, *, action: str, changes: Changes, by: Editor, where: str) -> None:
    audit.record(
        ApiTokenChange,
        row,
        action=action,
        changes=changes,
        by=by,
        where=where,
        token=row,
        token_name=str(row),
        whose=row.user.get_username()[:150],
    )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()

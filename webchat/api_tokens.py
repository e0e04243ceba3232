"""Issues, verifies and revokes API tokens, and records each change in an audit log.

A token has 256 random bits, so an unsalted SHA-256 hash of it is safe to store.
"""

import hashlib
import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, PermissionsMixin
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext as _

from governance import audit, db_clock
from governance.audit import Changes, Editor
from governance.db import atomic, run_in_query_thread, without_lock_wait
from webchat.models import ApiToken, ApiTokenChange

PREFIX = "tk_"
TOUCH_INTERVAL = 60.0  # seconds between two updates of `last_used_at`
SHOWN = 8  # leading characters that are stored, so that people can tell tokens apart


@atomic()
def issue(
    *, user: AbstractBaseUser, name: str, by: Editor = None, where: str = ""
) -> tuple[ApiToken, str]:
    """Issue a token for the user. Return its row and the token itself, which is not stored.

    `by` is the user who issues it, or None if a program on the server does. `where` then names that program.

    Raises:
        PermissionDenied: `by` may not issue tokens for this user.
    """
    if by is not None and not may_issue_for(user, by=by):
        raise PermissionDenied(
            _(
                "You can create tokens only for yourself. Superusers can also create them for others."
            )
        )
    token = PREFIX + secrets.token_urlsafe(32)
    row = ApiToken.objects.create(
        user_id=user.pk, name=name, sha256=_hash(token), start=token[:SHOWN]
    )
    _note(row, action="add", changes={"user": [None, user.get_username()]}, by=by, where=where)
    return row, token


def may_issue_for(user: AbstractBaseUser, *, by: AbstractBaseUser) -> bool:
    """Return whether `by` may issue a token for the user. Only superusers may issue tokens for others."""
    return by.pk == user.pk or bool(getattr(by, "is_superuser", False))


@atomic()
def revoke(tokens: QuerySet[ApiToken], *, by: Editor = None, where: str = "") -> int:
    """Revoke tokens. Return how many of them were active."""
    active = ApiToken.objects.filter(pk__in=tokens.values("pk"), revoked_at=None)
    rows = list(active.select_for_update().order_by("pk"))
    for row in (
        rows
    ):  # saved one by one, because the signal of each row closes the sockets that use its token
        row.revoked_at = db_clock.now()
        row.save(update_fields=["revoked_at"])
        changes: Changes = {"revoked_at": [None, row.revoked_at.isoformat(timespec="seconds")]}
        _note(row, action="change", changes=changes, by=by, where=where)
    return len(rows)


def forget_user(sender: object, *, user: Any, old_name: str, new_name: str, **_: Any) -> None:
    """Delete the tokens of a forgotten user. Their audit entries remain, under the new name."""
    for change in ApiTokenChange.objects.filter(whose=old_name):
        if old_name in (change.changes.get("user") or ()):
            change.changes["user"] = [None, new_name]
        change.whose = new_name
        change.save(update_fields=["changes", "whose"])
    ApiToken.objects.filter(user=user.pk).delete()


def of_unknown_origin() -> QuerySet[ApiToken]:
    """Return the active tokens of superusers whose issuer is unknown.

    Early versions let staff issue tokens for everybody, and recorded no issuer.
    """
    if not issubclass(get_user_model(), PermissionsMixin):
        return ApiToken.objects.none()
    issued = ApiTokenChange.objects.filter(token=OuterRef("pk"), action="add")
    return ApiToken.objects.filter(~Exists(issued), user__is_superuser=True, revoked_at=None)


def find_user(token: str) -> AbstractBaseUser | None:
    """Return the user of a token, or None if the token is unknown or revoked, or if its user is inactive."""
    digest = _hash(token)
    active = ApiToken.objects.filter(sha256=digest, revoked_at=None)
    row = active.select_related("user").first()
    if row is None or not constant_time_compare(row.sha256, digest) or not row.user.is_active:
        return None
    _touch(row)
    user: AbstractBaseUser = row.user
    return user


find_user_async = run_in_query_thread(find_user)


def bearer_of(header: str) -> str | None:
    """Return the bearer token in an `Authorization` header, or None if there is none."""
    scheme, _space, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _touch(row: ApiToken) -> None:
    now = db_clock.now()
    stale = now - timedelta(seconds=TOUCH_INTERVAL)
    if row.last_used_at is None or row.last_used_at < stale:
        unseen = Q(last_used_at=None) | Q(last_used_at__lt=stale)
        with suppress(OperationalError), without_lock_wait():  # the next use tries again
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

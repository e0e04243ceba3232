"""API tokens: made, recognised, revoked. A token is 256 random bits, so its plain SHA-256 is enough."""

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from governance.doors import database_door
from webchat.conf import app_settings
from webchat.models import ApiToken

PREFIX = "tk_"
SHOWN = 8  # characters that tell tokens apart in a list


def issue(*, user: AbstractBaseUser, name: str) -> tuple[ApiToken, str]:
    """Make a token for the user; return its row and the token, which cannot be shown again."""
    token = fresh()
    row = ApiToken(user_id=user.pk, name=name)
    stamp(row, token)
    row.save()
    return row, token


def stamp(row: ApiToken, token: str) -> None:
    """Put the traces of a token on its row: the hash, and how it begins."""
    row.sha256, row.start = _hash(token), token[:SHOWN]


def fresh() -> str:
    """Return a new token."""
    return PREFIX + secrets.token_urlsafe(32)


def revoke(tokens: QuerySet[ApiToken]) -> int:
    """Make tokens useless from now on; return how many were still good."""
    good = list(tokens.filter(revoked_at=None))
    for row in good:  # one by one: a signal of each closes the sockets that it has opened
        row.revoked_at = timezone.now()
        row.save(update_fields=["revoked_at"])
    return len(good)


def find_user(token: str) -> AbstractBaseUser | None:
    """Return whom a token stands for, or None if it is unknown, revoked, or its user was switched off."""
    digest = _hash(token)
    row = ApiToken.objects.select_related("user").filter(sha256=digest, revoked_at=None).first()
    if row is None or not constant_time_compare(row.sha256, digest) or not row.user.is_active:
        return None
    _touch(row)
    user: AbstractBaseUser = row.user
    return user


find_user_async = database_door(find_user)


def bearer_of(header: str) -> str | None:
    """Return the token of an `Authorization` header, or None if it carries none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _touch(row: ApiToken) -> None:
    now = timezone.now()
    stale = now - timedelta(seconds=app_settings.TOKEN_TOUCH_INTERVAL)
    if row.last_used_at is None or row.last_used_at < stale:
        unseen = Q(last_used_at=None) | Q(last_used_at__lt=stale)
        ApiToken.objects.filter(unseen, pk=row.pk).update(last_used_at=now)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()

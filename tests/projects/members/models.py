"""Users without a user name, with an id that is no number."""

import uuid
from typing import ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models


class MemberManager(UserManager):
    """Makes members from an e-mail address."""

    def create_user(self, email, password=None, **fields):
        """Make a member."""
        return self._save(email, password, **fields)

    def create_superuser(self, email, password=None, **fields):
        """Make a member who may do everything."""
        return self._save(email, password, is_staff=True, is_superuser=True, **fields)

    def _save(self, email, password, **fields):
        member = self.model(email=self.normalize_email(email), **fields)
        member.set_password(password)
        member.save()
        return member


class Member(AbstractUser):
    """Signs in with an e-mail address."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    username = None
    email = models.EmailField("e-mail address", unique=True)
    objects: ClassVar = MemberManager()

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar = []

"""A password hasher that tests watch and hold up."""

import threading

from django.contrib.auth.hashers import MD5PasswordHasher

from webchat.sign_in import QueuedHasher


class HashCounter:
    """Where hashes are made: how many, how many at once at most, and in which threads."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.made = 0
        self.most = 0
        self.threads: set[int] = set()
        self._inside = 0
        self._lock = threading.Lock()
        self.open_again()

    def open_again(self) -> None:
        """Forget what was; let hashes be made at once."""
        self.made = self.most = 0
        self.threads.clear()
        self.is_open.set()

    @property
    def is_busy(self) -> bool:
        """Whether a hash is being made."""
        return self._inside > 0

    def work(self) -> None:
        """Make one."""
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
            self.threads.add(threading.get_ident())
        self.is_open.wait(300)
        with self._lock:
            self._inside -= 1
            self.made += 1


workshop = HashCounter()


class WatchedHasher(MD5PasswordHasher):
    """Hashes in the workshop."""

    def encode(self, password: str, salt: str) -> str:
        workshop.work()
        return super().encode(password, salt)


class QueuedWatchedHasher(QueuedHasher, WatchedHasher):
    """Hashes there when it is its turn."""

"""The contexts of one browser: a visitor's own cookies and storage, over a cache that stays warm."""

from playwright.async_api import Browser, BrowserContext, StorageState

from tests.e2e.site import Site
from tests.support import PATIENCE

# Without animations: a browser that draws by the processor spends much of its time on them.
_USUAL = {"viewport": {"width": 1280, "height": 850}, "reduced_motion": "reduce"}
_STORAGE = "local_storage,indexeddb,cache_storage,service_workers"


class Contexts:
    """Contexts for one visitor at a time.

    A page names a hundred files. Whoever comes with usual options gets the context that its forerunner gave back. It
    has these files in its cache, and nothing else that the forerunner left.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._signed_in: dict[tuple[Site, str], StorageState] = {}
        self._free: dict[tuple[Site, str], BrowserContext] = {}
        self._taken: dict[BrowserContext, tuple[Site, str]] = {}

    async def take(self, site: Site, user: str | None, **options: object) -> BrowserContext:
        """Return a context in which `user` has signed in, if any test has done so before."""
        key = (site, user or "")  # the same address may be another site later
        context = None if options else self._free.pop(key, None)
        if context is None:
            context = await self._browser.new_context(
                **{**_USUAL, **options}, storage_state=self._signed_in.get(key)
            )
            context.set_default_timeout(PATIENCE * 1000)
        if user and not options:
            self._taken[context] = key
        return context

    def has_signed_in(self, site: Site, user: str) -> bool:
        """Whether there are cookies of this user: the form is filled in once for each."""
        return (site, user) in self._signed_in

    async def note_sign_in(self, site: Site, user: str, context: BrowserContext) -> None:
        """Remember the cookies of somebody who has signed in."""
        self._signed_in[site, user] = await context.storage_state()

    async def give_back(self, context: BrowserContext, *, keep: bool) -> None:
        """Close the tabs; keep the context for the next visitor if it can be made as new."""
        key = self._taken.pop(context, None)
        if key is None or key in self._free or not keep:
            await context.close()
            return
        await self._clear(context, key)
        self._free[key] = context

    async def _clear(self, context: BrowserContext, key: tuple[Site, str]) -> None:
        for page in context.pages:
            await page.close()
        await context.unroute_all()
        await context.clear_permissions()
        await context.set_offline(False)
        page = await context.new_page()
        devtools = await context.new_cdp_session(page)
        await devtools.send(
            "Storage.clearDataForOrigin", {"origin": key[0].url, "storageTypes": _STORAGE}
        )
        await page.close()
        await context.clear_cookies()
        await context.add_cookies(self._signed_in[key]["cookies"])

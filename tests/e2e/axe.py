"""What axe finds on a page. It is brought into each page once, and tells what is wrong alone."""

from typing import Any

from playwright.async_api import Page

from tests.support import eventually

# All rules up to AA: also those that axe leaves out unless it is asked, such as the size of targets and words in names.
UP_TO_AA: dict[str, Any] = {
    "runOnly": [
        *(f"wcag{version}{level}" for version in ("2", "21", "22") for level in ("a", "aa")),
        "best-practice",
        "experimental",
    ]
}
# What another colour scheme can change: it has other colours, and nothing else.
COLOURS: dict[str, Any] = {
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
}
# A colour on its way to another scheme belongs to neither. The promises of animations are not used: Chromium may drop them.
_IS_AT_REST = """
document.getAnimations().every(
    ({ playState, effect }) => playState !== "running" || effect.getComputedTiming().endTime === Infinity
)
"""
_JUDGE = """
async ([context, options]) => {
    const found = await axe.run(context ?? document, {...options, resultTypes: ["violations"]});
    const wrong = ({ id, nodes }) => nodes.map(({ target, failureSummary }) => [id, target, failureSummary]);
    return { passed: found.passes.length, findings: found.violations.flatMap(wrong) };
}
"""


async def findings(
    page: Page, options: dict[str, Any], *, within: dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """Return each broken rule, with the element and what to do about it."""
    if not await page.evaluate("'axe' in window"):
        from axe_playwright_python.base import AXE_SCRIPT  # not in requirements/test.in

        await page.evaluate(AXE_SCRIPT)
    await eventually(lambda: page.evaluate(_IS_AT_REST))
    judged = await page.evaluate(_JUDGE, [within, options])
    assert judged["passed"]
    return [tuple(found) for found in judged["findings"]]

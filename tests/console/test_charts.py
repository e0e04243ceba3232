"""The histogram of durations, parsed as the SVG that it is: what stands where on the logarithmic axis."""

import re
from math import log2
from xml.etree import ElementTree

import pytest
from django.urls import reverse

from governance import services

PROBE = reverse("admin:governance_toolpolicy_tool", args=["probe"])
ROUNDING = 0.3  # of places, which have one decimal
BIN = (
    1 / 8
)  # of a doubling: what a place on the axis may differ from its logarithm, and a little more


class Histogram:
    """The first chart of a tool's page."""

    def __init__(self, page):
        text = page.content.decode()
        [figure] = [
            part
            for part in re.findall(r"<figure.*?</figure>", text, re.S)
            if "Durations of calls" in part
        ]
        self.svg = ElementTree.fromstring(re.search(r"<svg.*?</svg>", figure, re.S)[0])
        self.bars = {float(bar.get("x")) - 1: bar for bar in self.svg.iter("rect")}
        self.left, self.right = min(self.bars), max(self.bars)

    def lines(self, name):
        return [line for line in self.svg.iter("line") if line.get("class") == name]

    def place(self, name):
        """Where the upright line of this class stands."""
        [line] = self.lines(name)
        assert line.get("x1") == line.get("x2")
        assert float(line.get("y1")) < float(line.get("y2"))
        return float(line.get("x1"))

    def label(self, words):
        [text] = [text for text in self.svg.iter("text") if words in (text.text or "")]
        return float(text.get("x"))


@pytest.fixture
def shown(admin_client, probe, make_call):
    """Show the histogram of 20 calls: 18 of 2¹¹ ms, one of 2¹³ and one of 2¹⁴, with a limit in milliseconds."""
    for duration_ms, count in ((2**11, 18), (2**13, 1), (2**14, 1)):
        for _ in range(count):
            make_call(status="succeeded", duration_ms=duration_ms)

    def show(limit_ms):
        services.save_tool_policy(tool_name="probe", values={"timeout_ms": limit_ms}, by=None)
        chart = Histogram(admin_client.get(PROBE))
        doubling = (chart.right - chart.left) / log2(2**14 / 2**11)
        return chart, lambda span: chart.left + doubling * log2(span / 2**11), doubling

    return show


@pytest.mark.parametrize("limit_ms", [2**10, 2**13, 2**15, 2**20])
def test_the_limit_and_the_p95_stand_where_the_logarithmic_axis_has_them(shown, limit_ms):
    chart, place, _doubling = shown(limit_ms)
    assert chart.place("limit") == pytest.approx(place(limit_ms), abs=1)
    assert chart.place("usual") == pytest.approx(place(2**13), abs=ROUNDING)
    assert len(chart.bars) == 3
    assert (
        min(chart.bars, key=lambda left: abs(left - chart.place("usual"))) == sorted(chart.bars)[1]
    )
    width = float(chart.svg.get("viewBox").split()[2])
    for line in ("limit", "usual"):
        assert 0 < chart.place(line) < width
    assert abs(chart.label("p95 8.2") - chart.place("usual")) <= 5
    assert abs(chart.label("limit ") - chart.place("limit")) <= 5


@pytest.mark.parametrize("limit_ms", [1_500, 12_345, 50_000, 600_000])
def test_a_limit_between_two_bins_is_off_by_less_than_a_bin(shown, limit_ms):
    chart, place, doubling = shown(limit_ms)
    assert chart.place("limit") == pytest.approx(place(limit_ms), abs=BIN * doubling)


def test_the_ticks_of_the_axis_are_those_of_a_logarithm(shown):
    chart, place, doubling = shown(600_000)
    ticks = sorted(
        float(line.get("x1")) for line in chart.lines("tick") if line.get("x1") == line.get("x2")
    )
    spans = (10_000, 60_000, 600_000)
    assert ticks == pytest.approx([place(span) for span in spans], abs=BIN * doubling)
    assert [chart.label(words) for words in ("10 s", "1 min")] == ticks[:2]


def test_calls_that_ran_out_of_time_have_their_bar_at_the_limit(shown, make_call):
    for _ in range(3):
        make_call(status="timed_out", error_type="timeout", duration_ms=2**15 + 40)
    chart, _place, _doubling = shown(2**15)
    [cut] = [bar for bar in chart.svg.iter("rect") if bar.get("class") == "cut"]
    assert float(cut.get("x")) - 1 == pytest.approx(chart.place("limit"), abs=ROUNDING)
    assert cut.find("title").text.endswith(": 3")
    assert chart.lines("usual") == []  # three of 23 lie above: the p95 is unknown


def test_without_a_limit_there_is_no_line_for_it(shown):
    chart, place, _doubling = shown(0)
    assert chart.lines("limit") == []
    assert chart.place("usual") == pytest.approx(place(2**13), abs=ROUNDING)

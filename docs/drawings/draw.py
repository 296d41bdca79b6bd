"""Writes the drawings of docs/concepts.md.

python docs/drawings/draw.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
COMMAND = "python docs/drawings/draw.py"

# Light fills with dark text, on white: readable on a dark page, too.
DRAM, LOGIC, QUEUE, HOST, LINK, PLAIN = "#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#ffffff"
INK = "#222222"


class Drawing:
    """Boxes, arrows and words on white; x to the right and y down, in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="13" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="end" markerWidth="9" markerHeight="8" refX="8" refY="4" '
            'orient="auto-start-reverse">'
            f'<path d="M0,0 L9,4 L0,8 z" fill="{INK}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def words(self, x: float, y: float, text: str, anchor: str = "middle", size: int = 13) -> None:
        """Lines of text, the middle of the first one's foot at (x, y)."""
        for number, line in enumerate(text.split("\n")):
            self.parts.append(
                f'<text x="{x:g}" y="{y + number * (size + 3):g}" text-anchor="{anchor}" '
                f'font-size="{size}">{escape(line)}</text>'
            )

    def box(self, x: float, y: float, width: float, height: float, text: str = "", fill: str = PLAIN) -> None:
        """A box with its lines of text in the middle."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" '
            f'stroke="{INK}"/>'
        )
        lines = text.count("\n") + 1
        self.words(x + width / 2, y + height / 2 + 5 - (lines - 1) * 8, text)

    def frame(self, x: float, y: float, width: float, height: float, text: str) -> None:
        """A dashed box around others, its name inside at the top."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="none" '
            f'stroke="{INK}" stroke-dasharray="5 4"/>'
        )
        self.words(x + 10, y + 18, text, "start")

    def arrow(self, *points: tuple[float, float], both: bool = False) -> None:
        """A line through the points with a head at its end, or at both."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        start = ' marker-start="url(#end)"' if both else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.4" '
            f'marker-end="url(#end)"{start}/>'
        )

    def line(self, *points: tuple[float, float]) -> None:
        """A line without heads."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.4"/>')

    def svg(self) -> str:
        """The file."""
        return "\n".join([*self.parts, "</svg>\n"])


def dimm() -> Drawing:
    """A DIMM of four ranks and two sub-channels: eight lanes."""
    drawing = Drawing(760, 450, "A DIMM with four ranks, two sub-channels and an NDP unit on its buffer chip")
    drawing.frame(10, 10, 740, 345, "DIMM")
    for sub in range(2):
        left = 30 + 360 * sub
        drawing.words(left + 165, 48, f"sub-channel {sub}")
        for rank in range(4):
            x = left + 85 * rank
            drawing.box(x, 58, 72, 44, f"rank {rank}\n(DRAM)", DRAM)
            drawing.arrow((x + 36, 102), (x + 36, 150))
            drawing.box(x, 150, 72, 30, "FIFO", QUEUE)
            drawing.arrow((x + 36, 180), (x + 36, 206))
    drawing.words(24, 131, "lanes", "start")
    drawing.frame(20, 138, 720, 205, "")
    drawing.words(732, 335, "buffer chip", "end")
    drawing.box(30, 206, 690, 38, "multipliers, each lane its share, and the adder tree", LOGIC)
    drawing.arrow((180, 244), (180, 272), both=True)
    drawing.arrow((420, 244), (420, 272), both=True)
    drawing.box(60, 272, 240, 34, "buffer: activations, partial sums", QUEUE)
    drawing.box(340, 272, 160, 34, "activation unit", LOGIC)
    drawing.box(540, 272, 160, 34, "relayout engine", LOGIC)
    drawing.arrow((180, 306), (180, 400), both=True)
    drawing.arrow((620, 306), (620, 400), both=True)
    drawing.box(60, 400, 240, 36, "host: two sub-channels of DDR5", HOST)
    drawing.box(540, 400, 160, 36, "links to other DIMMs", LINK)
    return drawing


def expert() -> Drawing:
    """The phases of an expert over time, each on its resource."""
    drawing = Drawing(760, 268, "How an expert goes through a DIMM, over time")
    rows = ("host bus", "lanes: weights", "multipliers", "activation unit")
    for number, name in enumerate(rows):
        y = 40 + 48 * number
        drawing.words(118, y + 20, name, "end")
        drawing.line((130, y + 34), (740, y + 34))
    drawing.box(130, 40, 60, 28, "in", HOST)
    drawing.box(140, 88, 330, 28, "gate and up", DRAM)
    drawing.box(470, 88, 200, 28, "down", DRAM)
    drawing.box(190, 136, 300, 28, "gate(x), up(x)", LOGIC)
    drawing.box(490, 136, 200, 28, "down(...)", LOGIC)
    drawing.box(215, 184, 280, 28, "act(gate) * up, as they come", LOGIC)
    drawing.box(520, 40, 185, 28, "results out, as they come", HOST)
    drawing.words(150, 24, "activations", "middle")
    drawing.arrow((130, 240), (740, 240))
    drawing.words(735, 258, "time", "end")
    drawing.words(130, 258, "weights are read ahead into the FIFOs; a full FIFO holds reads back", "start")
    return drawing


def relayout() -> Drawing:
    """A burst on its way from one DIMM to another."""
    drawing = Drawing(760, 200, "Relayout: from the lanes of one DIMM, over links, to the lanes of another")
    for left, name, lane in ((10, "source DIMM", "lanes\nread"), (500, "target DIMM", "lanes\nwrite")):
        drawing.frame(left, 10, 250, 130, name)
        first, second = (left + 15, left + 145)
        at = {"lanes\nread": (first, second), "lanes\nwrite": (second, first)}[lane]
        drawing.box(at[0], 50, 90, 56, lane, DRAM)
        drawing.box(at[1], 50, 90, 56, "relayout\nbuffer", QUEUE)
        drawing.arrow((left + 105, 78), (left + 145, 78))
    drawing.box(310, 54, 140, 48, "link: packets,\nflows in turn", LINK)
    drawing.arrow((245, 78), (310, 78))
    drawing.arrow((450, 78), (515, 78))
    drawing.words(380, 168, "A full buffer holds back what comes before it: packets wait, then reads do.")
    return drawing


def topologies() -> Drawing:
    """Chain, ring, mesh, full, bus and groups."""
    drawing = Drawing(912, 190, "How DIMMs can be linked")
    chain = ((0, 1), (1, 2), (2, 3))
    square = ((0, 1), (1, 3), (3, 2), (2, 0))
    shapes = {
        "chain": (((0, 45), (36, 45), (72, 45), (108, 45)), chain),
        "ring": (((20, 20), (88, 20), (20, 90), (88, 90)), square),
        "mesh": (
            ((10, 20), (54, 20), (98, 20), (10, 90), (54, 90), (98, 90)),
            ((0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)),
        ),
        "full": (((20, 20), (88, 20), (20, 90), (88, 90)), (*square, (0, 3), (1, 2))),
        "bus": (((0, 45), (36, 45), (72, 45), (108, 45)), ()),
        "groups": (
            ((0, 15), (36, 15), (72, 15), (0, 99), (36, 99), (72, 99)),
            ((0, 1), (1, 2), (3, 4), (4, 5)),
        ),
    }
    for column, (name, (places, links)) in enumerate(shapes.items()):
        left = 14 + 152 * column
        for one, other in links:
            drawing.line(*((left + x + 12, 20 + y + 12) for x, y in (places[one], places[other])))
        if name == "bus":
            drawing.line((left, 119), (left + 132, 119))
            for x, y in places:
                drawing.line((left + x + 12, 20 + y + 12), (left + x + 12, 119))
        for x, y in places:
            drawing.box(left + x, 20 + y, 24, 24, "", DRAM)
        if name == "groups":
            drawing.line((left + 48, 59), (left + 48, 119))
            drawing.box(left + 14, 77, 68, 24, "host", HOST)
        drawing.words(left + 60, 176, name)
    return drawing


def host() -> Drawing:
    """The controllers of the host and of the lanes, on the same ranks."""
    drawing = Drawing(760, 300, "The host beside the DIMM: two controllers, an arbiter, the same ranks")
    drawing.box(30, 30, 190, 60, "host's controller\nof a sub-channel:\nranks of all its DIMMs", HOST)
    drawing.box(540, 30, 190, 60, "a lane's controllers:\nweights of experts,\nand relayouts", LOGIC)
    drawing.box(
        280, 30, 200, 60, "arbiter: host-first,\nndp-first or slice;\nwho waits long goes first", PLAIN
    )
    drawing.arrow((220, 60), (280, 60))
    drawing.arrow((540, 60), (480, 60))
    drawing.arrow((380, 90), (380, 150))
    drawing.words(390, 125, "one command a clock", "start")
    drawing.box(280, 150, 200, 44, "rank: banks, rows, timings", DRAM)
    drawing.arrow((280, 172), (125, 172), (125, 90))
    drawing.arrow((480, 172), (635, 172), (635, 90))
    drawing.words(125, 192, "each sees what the other does", "middle")
    drawing.words(635, 192, "to rows, timings, refreshes", "middle")
    drawing.arrow((330, 194), (330, 240), both=True)
    drawing.arrow((430, 194), (430, 240))
    drawing.box(180, 240, 170, 40, "bus to the host", HOST)
    drawing.box(410, 240, 170, 40, "FIFO and multipliers", QUEUE)
    return drawing


def model() -> Drawing:
    """Policy, orchestrator and engines."""
    drawing = Drawing(760, 330, "A whole model: the policy decides, the orchestrator simulates time")
    drawing.box(20, 30, 160, 48, "routing:\nexperts of each token", PLAIN)
    drawing.box(290, 20, 180, 68, "policy:\nplace, assign,\nbackground", LOGIC)
    drawing.box(590, 30, 150, 48, "estimates:\nwhat it believes", PLAIN)
    drawing.arrow((180, 54), (290, 54))
    drawing.arrow((590, 54), (470, 54))
    drawing.words(235, 46, "loads")
    drawing.box(240, 140, 280, 48, "orchestrator: jobs on resources,\nevent by event", QUEUE)
    drawing.arrow((380, 88), (380, 140))
    drawing.words(390, 118, "which engine, what moves", "start")
    drawing.box(580, 140, 160, 48, "cycle-level model:\ntimes and slowdowns", DRAM)
    drawing.arrow((580, 164), (520, 164))
    for column, (name, fill) in enumerate(
        (("GPU, PCIe", HOST), ("CPU, host channels", HOST), ("NDP units", LOGIC), ("links: migrations", LINK))
    ):
        x = 20 + 185 * column
        drawing.box(x, 250, 165, 36, name, fill)
        drawing.arrow((380, 188), (x + 82, 250))
    drawing.words(380, 314, "a log of all jobs and migrations, which ndpsim check judges")
    return drawing


def sweep() -> Drawing:
    """From keys and values to a table and a picture."""
    drawing = Drawing(760, 150, "A sweep: one command at many points")
    steps = (
        ("keys and values,\na YAML file or --vary", PLAIN),
        ("points: each choice\nof values once", QUEUE),
        ("runs, on all cores\nor on a cluster", LOGIC),
        ("one small file\na point", DRAM),
        ("table: CSV, Parquet;\npicture; HTML report", HOST),
    )
    for column, (text, fill) in enumerate(steps):
        x = 8 + 150 * column
        drawing.box(x, 36, 136, 50, "", fill)
        drawing.words(x + 68, 58, text, size=12)
        if column:
            drawing.arrow((x - 14, 61), (x, 61))
    drawing.arrow((526, 86), (526, 116), (226, 116), (226, 86))
    drawing.words(376, 134, "what is there is found again: the same command goes on where it ended", size=12)
    return drawing


#: The drawings by the names of their files.
DRAWINGS: dict[str, Callable[[], Drawing]] = {
    f"{draw.__name__}.svg": draw for draw in (dimm, expert, relayout, topologies, host, model, sweep)
}

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (HERE / name).write_text(draw().svg(), encoding="utf-8")

"""From measured runs to goals met or missed, and to the Markdown that is kept."""
import statistics

OURS, YARDSTICK, KAFKA, BASELINE = "barnabas", "limit", "kafka-4.3.1", "baseline"
IDLE_CPU_PCT_MAX = 0.1  # what "idle CPU 0" allows: a tick in ten seconds

# name; kind of row; key of its result; base; most or least allowed
RATIO_GOALS = [
    ("broker CPU per GB produced", "produce", "broker_cpu_s_per_gb", YARDSTICK, "<=", 1.3),
    ("produce throughput", "produce", "mb_s", YARDSTICK, ">=", 0.8),
    ("broker CPU per GB fetched", "fetch", "broker_cpu_s_per_gb", YARDSTICK, "<=", 1.2),
    ("broker CPU per GB fetched", "fetch", "broker_cpu_s_per_gb", KAFKA, "<=", 1.0),
    ("end to end at 2,000 records/s, p50", "e2e", "lat_us.p50", YARDSTICK, "<=", 1.4),
    ("end to end at 2,000 records/s, p99", "e2e", "lat_us.p99", YARDSTICK, "<=", 2.0),
]

# name; keys of the lifecycle's result, of which the worst counts; most allowed; unit
LIFECYCLE_GOALS = [
    ("start to first Metadata, new folder", ["first_start_ms"], 50, "ms"),
    ("start to first Metadata, again", ["start_ms"], 50, "ms"),
    ("start with 6,000 partitions", ["start_many_ms"], 400, "ms"),
    ("idle memory", ["idle.rss_mb"], 20, "MB"),
    ("idle memory, 6,000 partitions", ["idle_many.rss_mb", "restarted_many_rss_mb"], 80, "MB"),
    ("2,000 idle connections, more memory", ["connections.rss_delta_mb"], 15, "MB"),
    ("topic of 5,000 partitions ready", ["topic_5000_ms"], 600, "ms"),
    ("idle CPU", ["idle.cpu_pct", "idle_many.cpu_pct"], IDLE_CPU_PCT_MAX, "%"),
    ("idle CPU, 2,000 connections, 5 s", ["connections.idle_cpu_s"], 0.0, "s"),
]

TABLES = [
    ("produce", "Produce: broker CPU seconds per GB", "broker_cpu_s_per_gb", 1, True),
    ("produce", "Produce: MB/s", "mb_s", 1, True),
    ("produce", "Produce: latency p99, ms", "lat_us.p99", 1e-3, False),
    ("fetch", "Fetch: broker CPU seconds per GB", "broker_cpu_s_per_gb", 1, True),
    ("fetch", "Fetch: MB/s", "mb_s", 1, True),
    ("e2e", "End to end: p50, us", "lat_us.p50", 1, True),
    ("e2e", "End to end: p99, us", "lat_us.p99", 1, True),
    ("e2e", "End to end: broker CPU, % of a core", "broker_cpu_pct", 1, True),
]

LIFECYCLE_ROWS = [
    ("first start, new folder, ms", "first_start_ms"),
    ("start, ms", "start_ms"),
    ("CPU seconds spent by then", "start_cpu_s"),
    ("idle RSS, MB", "idle.rss_mb"),
    ("idle CPU, %", "idle.cpu_pct"),
    ("2,000 connections opened, ms", "connections.open_ms"),
    ("... alive after 5 s", "connections.alive"),
    ("... RSS more, MB", "connections.rss_delta_mb"),
    ("... CPU seconds in 5 s", "connections.idle_cpu_s"),
    ("topic of 1,000 partitions ready, ms", "topic_1000_ms"),
    ("topic of 5,000 partitions ready, ms", "topic_5000_ms"),
    ("RSS with these, MB", "idle_many.rss_mb"),
    ("idle CPU with these, %", "idle_many.cpu_pct"),
    ("stop with these, ms", "stop_many_ms"),
    ("start with these, ms", "start_many_ms"),
    ("RSS after that start, MB", "restarted_many_rss_mb"),
]


def at(result, path):
    """result["a"]["b"] of "a.b"; None where something on the way is missing."""
    for key in path.split("."):
        result = result.get(key) if isinstance(result, dict) else None
    return result


def broken(run):
    return bool(run.get("failed") or run.get("errors"))


def values(case, name, path):
    """What the rounds of a row gave for one broker, those left out that went wrong."""
    found = (at(run, path) for run in case["results"].get(name, []) if not broken(run))
    return [value for value in found if value is not None]


def median(case, name, path):
    got = values(case, name, path)
    return statistics.median(got) if got else None


def ratio(case, name, base, path):
    ours, theirs = median(case, name, path), median(case, base, path)
    return ours / theirs if ours is not None and theirs else None


def number(value):
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3f}"


# ---- goals ----------------------------------------------------------------------------------------------------------


def ratio_goal(doc, row):
    """The geometric mean of the rows' ratios, and the row that is furthest on the wrong side."""
    name, kind, path, base, sense, bound = row
    rows = [case for case in doc["cases"] if case["kind"] == kind and case["in_goal"]]
    found = {case["label"]: ratio(case, OURS, base, path) for case in rows}
    found = {label: value for label, value in found.items() if value}
    if not found:
        return None
    faulty = any(broken(run) for case in rows for run in case["results"].get(OURS, []))
    worst = (max if sense == "<=" else min)(found, key=found.get)
    mean = statistics.geometric_mean(found.values())
    peers = [ratio(case, KAFKA, base, path) for case in rows]
    peers = [value for value in peers if value]
    return dict(
        goal=f"{name}, x {base}",
        measured=round(mean, 3),
        bound=f"{sense} {bound}",
        met=not faulty and (mean <= bound if sense == "<=" else mean >= bound),
        of=("runs with errors; " if faulty else "") + f"mean of {len(found)} rows; worst {found[worst]:.2f}: {worst}",
        kafka=round(statistics.geometric_mean(peers), 3) if peers and base != KAFKA else None,
    )


def lifecycle_goal(doc, row):
    name, paths, bound, unit = row
    got = [at(doc["lifecycle"].get(OURS, {}), path) for path in paths]
    got = [value for value in got if value is not None]
    if not got:
        return None
    kafka = [at(doc["lifecycle"].get(KAFKA, {}), path) for path in paths]
    kafka = [value for value in kafka if value is not None]
    return dict(
        goal=f"{name}, {unit}",
        measured=max(got),
        bound=f"<= {bound:g}",
        met=max(got) <= bound,
        of="",
        kafka=max(kafka) if kafka else None,
    )


def goals(doc):
    """What this run can say about the goals; a goal whose rows it did not run is left out."""
    made = [ratio_goal(doc, row) for row in RATIO_GOALS] + [lifecycle_goal(doc, row) for row in LIFECYCLE_GOALS]
    return [goal for goal in made if goal]


# ---- Markdown -------------------------------------------------------------------------------------------------------


def table(head, rows):
    """A Markdown table whose columns stand under each other in a terminal too."""
    cells = [head, *rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines + [""]


def goals_table(doc):
    rows = [
        [
            goal["goal"],
            number(goal["measured"]),
            goal["bound"],
            "pass" if goal["met"] else "FAIL",
            number(goal["kafka"]),
            goal["of"],
        ]
        for goal in goals(doc)
    ]
    if not rows:
        return []
    return ["## Goals", "", *table(["goal", "measured", "bound", "", "Kafka", "of"], rows)]


def pairs(names):
    """Which broker is divided by which: all by the yardstick, ours also by the build that it is compared with."""
    found = [(name, YARDSTICK) for name in names if name not in (YARDSTICK, BASELINE) and YARDSTICK in names]
    if BASELINE in names:
        found.append((OURS, BASELINE))
    return found


def with_spread(case, name, path, scale):
    """The median, and from where to where the rounds went."""
    got = [value * scale for value in values(case, name, path)]
    if len(got) < 2:
        return number(got[0] if got else None)
    return f"{number(statistics.median(got))} ({number(min(got))}..{number(max(got))})"


def case_table(doc, kind, title, path, scale, with_ratios):
    cases = [case for case in doc["cases"] if case["kind"] == kind]
    names = doc["brokers"]
    if not cases:
        return []
    divided = pairs(names) if with_ratios else []
    rows = []
    for case in cases:
        row = [case["label"] + ("" if case["in_goal"] else " *")]
        row += [with_spread(case, name, path, scale) for name in names]
        rows.append(row + [number(ratio(case, one, base, path)) for one, base in divided])
    if divided and len(cases) > 1:
        rows.append(["**geometric mean**", *[""] * len(names), *[mean_ratio(cases, *pair, path) for pair in divided]])
    return [f"## {title}", "", *table(["row", *names, *[f"{one} / {base}" for one, base in divided]], rows)]


def mean_ratio(cases, name, base, path):
    got = [ratio(case, name, base, path) for case in cases if case["in_goal"]]
    got = [value for value in got if value]
    return number(statistics.geometric_mean(got)) if got else "-"


def lifecycle_table(doc):
    names = [name for name in doc["brokers"] if name in doc["lifecycle"]]
    if not names:
        return []
    rows = [[head, *[number(at(doc["lifecycle"][name], path)) for name in names]] for head, path in LIFECYCLE_ROWS]
    return ["## Lifecycle", "", *table(["", *names], rows)]


def errors(doc):
    """Rows in which something went wrong: their figures are not to be believed."""
    for case in doc["cases"]:
        for name, runs in case["results"].items():
            for run in runs:
                if broken(run):
                    yield f"- {case['label']}, {name}: {run.get('errors') or ''} {run.get('stderr', '')}"


def markdown(doc):
    lines = [
        f"# Benchmark, {doc['date']}",
        "",
        f"{doc['machine']}. Barnabas {doc['version']}. Load average before {doc['load_before']}, after"
        f" {doc['load_after']}. Effort {doc['effort']}, rounds {doc['rounds']}; a cell is the median of the rounds, in"
        " brackets the least and the most. `limit` is the yardstick server; rows with * count in no mean.",
        "",
        *goals_table(doc),
    ]
    for row in TABLES:
        lines += case_table(doc, *row)
    lines += lifecycle_table(doc)
    wrong = list(errors(doc))
    if wrong:
        lines += ["## Errors", "", *wrong, ""]
    return "\n".join(lines)

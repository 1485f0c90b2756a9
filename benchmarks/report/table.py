"""The table in Markdown."""


def _number(value):
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _time(us):
    return f"{us:.2f} us" if us < 100 else f"{us:.0f} us" if us < 10000 else f"{us / 1000:.1f} ms"


def markdown(machine, rows, values, failures, quick):
    judged = [row for row in rows if row["target"] is not None]
    reached = sum(row["verdict"] == "reached" for row in judged)
    unsteady = sum(row["verdict"].endswith("UNSTEADY") for row in judged)
    lines = ["# Benchmark", "",
             *(f"- {name}: {value}" for name, value in machine.items()),
             f"- {reached} of {len(judged)} ratios reach their target steadily; {unsteady} are unsteady, which a quiet "
             f"machine would not show" + (" (a quick run: one launch, few calls)" if quick else ""),
             *(f"- **failed**: {failure}" for failure in failures), "",
             "A ratio is the peer's time by ours: same processes, same buffers, in turns, each buffer rewritten by its "
             "owner "
             "before every call of 2 KB or more. Given are the median of the launches' medians, and the least and "
             "greatest "
             "of all rounds. Times are medians of this machine on this day and compare with nothing else.", "",
             "| row | workload | peer | floor | target | ratio (min to max) | verdict | peer | ours | note |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['row']} | {row['workload']} | {row['peer']} | {_number(row['floor'])} | "
                     f"{_number(row['target'])} | "
                     f"**{_number(row['measured'])}** ({_number(row['least'])} to {_number(row['most'])}) | "
                     f"{row['verdict']} | {_time(row['peer_us'])} | {_time(row['our_us'])} | {row['note']} |")
    if values:
        lines += ["", "| row | value | measured | at most | verdict | beside it |", "|---|---|---|---|---|---|"]
        for row in values:
            limit = "" if row["target"] is None else f"{_number(row['target'])} {row['unit']}"
            lines.append(f"| {row['row']} | {row['value']} | **{row['measured']:.3g} {row['unit']}** | {limit} | "
                         f"{row['verdict']} | {row['other']} |")
    return "\n".join(lines) + "\n"

"""Draws the picture: allreduce over sizes, and the steps of many tensors, as ratios with their spread."""
import statistics

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def _sizes(axes, records, ranks):
    peers = [("data_plane", "openmpi", "mpi", "ours", "Open MPI", "tab:orange"),
             ("data_plane", "mpich", "mpi", "ours", "MPICH", "tab:blue"),
             ("python", "gloo", "gloo", "ours", "Gloo (torch), its best round", "tab:green")]
    for program, peer, contender, ours, name, colour in peers:
        points = {}
        for record in records:
            if (record["program"], record.get("peer"), record["ranks"], record["workload"], record.get("dtype"),
                    record.get("variant", "default")) == (program, peer, ranks, "allreduce", "float32", "default") \
                    and contender in record["us"] and ours in record["us"]:
                theirs = record["us"][contender]
                if peer == "gloo":  # its times vary much where ranks fill the cores, so its best round counts
                    theirs = [min(theirs)] * len(theirs)
                points.setdefault(record["bytes"], []).extend(a / b for a, b in zip(theirs, record["us"][ours]))
        if points:
            sizes = sorted(points)
            axes.plot(sizes, [statistics.median(points[size]) for size in sizes], "o-", color=colour, label=name)
            axes.fill_between(sizes, [min(points[size]) for size in sizes], [max(points[size]) for size in sizes],
                              color=colour, alpha=0.2)
    axes.axhline(1, color="grey", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="peer's time / ours",
             title=f"allreduce float32, data plane, {ranks} ranks")
    axes.legend()


def _bars(axes, rows):
    shown = [row for row in rows if row["row"] in ("7", "8", "9", "P", "T")
             and row["peer"] != "the step without communication"]
    places = range(len(shown))
    least = [max(0, row["measured"] - row["least"]) for row in shown]
    most = [max(0, row["most"] - row["measured"]) for row in shown]
    axes.barh(places, [row["measured"] for row in shown], xerr=[least, most], color="tab:purple", alpha=0.7)
    for place, row in zip(places, shown):
        if row["target"] is not None:
            axes.plot([row["target"]] * 2, [place - 0.4, place + 0.4], color="black")
    axes.set_yticks(places, [f"{row['workload']} / {row['peer']}" for row in shown], fontsize=6)
    axes.invert_yaxis()
    axes.axvline(1, color="grey", linewidth=1)
    axes.set(xscale="log", xlabel="peer's time / ours (line: target)", title="a step's tensors")


def draw(path, machine, records, rows):
    records = [record for record in records if "us" in record]
    figure, axes = pyplot.subplots(1, 3, figsize=(22, 8), width_ratios=[1, 1, 0.8], layout="constrained")
    _sizes(axes[0], records, 2)
    _sizes(axes[1], records, 4)
    _bars(axes[2], rows)
    figure.suptitle("  ·  ".join(str(value) for value in list(machine.values())[:5]), fontsize=9)
    figure.savefig(path, dpi=110)

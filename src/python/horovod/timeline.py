"""Merges the timelines of a job's ranks (HOROVOD_TIMELINE_ALL_RANKS=1) into one timeline with one clock.

    python -m horovod.timeline merge all.json timeline.json timeline.json.*

In the result each rank is a process, and each of its tensors is a thread. The clocks are aligned in three steps:

1. Ranks of one node share a steady clock. The header of each file tells the time of this clock at the start.
2. The first estimate for a node is its time of day at the start. It is wrong by as much as the node's clock is wrong.
3. The ends of batches improve the estimate. Allreduce, allgather and barrier need data from all ranks, so no rank can
   end such a batch long before another. A batch has the same number on all ranks. For each batch, the first rank to end
   on one node is compared with the first on the other: a rank that noticed the end late does not count. The offset of
   a window of batches is the median of their differences. Clocks drift, so between windows the offset changes linearly.
"""
import argparse
import bisect
import json
import statistics
import sys

HEADER = "horovod"
MEETING = {"ALLREDUCE", "ADASUM", "ALLGATHER", "BARRIER"}
# The number of batches in a window: enough for a median, but few enough to follow clocks that drift.
LEAST_WINDOW = 16
MOST_WINDOWS = 256


class NoTimeline(Exception):
    pass


class RankFile:
    """The timeline of one rank."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, encoding="utf-8") as file:
                self.events = json.load(file)
        except (OSError, ValueError) as error:
            raise NoTimeline(f"{path} cannot be read as a timeline: {error}") from error
        if not isinstance(self.events, list) or not all(isinstance(event, dict) for event in self.events):
            raise NoTimeline(f"{path} is no timeline: a list of events was expected")
        arguments = [event.get("args", {}) for event in self.events if event.get("name") == HEADER]
        start = [event["args"]["start_time_since_epoch_in_micros"] for event in self.events
                 if "start_time_since_epoch_in_micros" in event.get("args", {})]
        if not arguments or not start:
            raise NoTimeline(f"{path} does not say which rank has written it; merge what this version of Horovod wrote")
        self.header = arguments[0]
        self.start_of_day = start[0]
        self.rank = self.header["rank"]
        self.node = self.header["node"]

    def ends_of_batches(self):
        """Returns {number of a batch: time at which its first tensor was done}, in the time of this file."""
        open_spans, ends = {}, {}
        for event in self.events:
            row = open_spans.setdefault(event["pid"], [])
            if event["ph"] == "B":
                row.append(event["name"])
            elif event["ph"] == "E" and row:
                name = row.pop()
                batch = event.get("args", {}).get("batch")
                if batch is not None and name in MEETING and "error" not in event["args"]:
                    ends[batch] = min(event["ts"], ends.get(batch, event["ts"]))
        return ends


class Node:
    """The files of ranks that share a clock."""

    def __init__(self, files):
        self.files = files
        # The median, because a clock that was set while the ranks started is wrong for some of them.
        self.day_of_steady_clock = statistics.median(
            file.start_of_day - file.header["start_of_steady_clock_in_micros"] for file in files)
        self.ends = {}
        for file in files:
            for batch, end in file.ends_of_batches().items():
                end += file.header["start_of_steady_clock_in_micros"]
                self.ends[batch] = min(end, self.ends.get(batch, end))


def offset_by_batches(node, reference):
    """Returns points (node's time, offset). At each point's time, the offset is to be added to the node's steady
    clock. Between points the offset changes linearly."""
    common = sorted(node.ends.keys() & reference.ends.keys())
    if not common:
        return [(0, node.day_of_steady_clock - reference.day_of_steady_clock)]
    size = max(LEAST_WINDOW, -(-len(common) // MOST_WINDOWS))
    windows = [common[i:i + size] for i in range(0, len(common), size)]
    if len(windows) > 1 and len(windows[-1]) < LEAST_WINDOW:
        windows[-2:] = [windows[-2] + windows[-1]]
    return [(statistics.median(node.ends[batch] for batch in window),
             statistics.median(reference.ends[batch] - node.ends[batch] for batch in window)) for window in windows]


def at(points, time):
    """Returns the offset at that time, on a straight line through the two nearest points. Before the first point and
    after the last one the nearest such line is continued."""
    if len(points) == 1:
        return points[0][1]
    after = min(max(bisect.bisect_left(points, (time,)), 1), len(points) - 1)
    (time0, offset0), (time1, offset1) = points[after - 1], points[after]
    return offset0 + (offset1 - offset0) * (time - time0) / max(time1 - time0, 1)


def events_of(file, points, start):
    """Yields the events of a rank (a process) and its tensors (threads). `start`: the start of the result, on the
    reference's steady clock."""
    head = {"ph": "M", "pid": file.rank}
    yield {**head, "name": "process_name", "args": {"name": f"rank {file.rank} ({file.header['host']})"}}
    yield {**head, "name": "process_sort_index", "args": {"sort_index": file.rank}}
    mine = file.header["start_of_steady_clock_in_micros"]
    latest = {}
    for event in file.events:
        row = event["pid"]
        if event["ph"] == "M":
            if row > 0 and event["name"] in ("process_name", "process_sort_index"):
                yield {**event, "name": event["name"].replace("process", "thread"), "pid": file.rank, "tid": row}
            continue
        time = round(mine + event["ts"] + at(points, mine + event["ts"]) - start)
        if event["ph"] in ("B", "E", "X"):  # those of a device overlap, and are in the order of their ends
            time = latest[row] = max(time, latest.get(row, time))
        moved = {**event, "ts": time, "pid": file.rank, "tid": row}
        # this instant event belongs to this rank only, not to all
        yield {**moved, "s": "p"} if event["ph"] == "i" else moved


def merge(paths):
    """Returns the events of all files in one list."""
    files = sorted(map(RankFile, paths), key=lambda file: file.rank)
    for one, other in zip(files, files[1:]):
        if one.rank == other.rank:
            raise NoTimeline(f"{one.path} and {other.path} are both of rank {one.rank}")
        if one.header["job"] != other.header["job"]:
            raise NoTimeline(f"{one.path} and {other.path} are of different jobs")
    by_node = {}
    for file in files:
        by_node.setdefault(file.node, []).append(file)
    nodes = [Node(of_node) for of_node in by_node.values()]
    reference = nodes[0]
    offsets = [offset_by_batches(node, reference) if node is not reference else [(0, 0)] for node in nodes]
    start = min(at(points, file.header["start_of_steady_clock_in_micros"]) +
                file.header["start_of_steady_clock_in_micros"]
                for node, points in zip(nodes, offsets) for file in node.files)
    merged = [{"name": "horovod_merged", "ph": "M", "pid": files[0].rank,
               "args": {"start_time_since_epoch_in_micros": round(start + reference.day_of_steady_clock)}}]
    for node, points in zip(nodes, offsets):
        for file in node.files:
            merged += events_of(file, points, start)
    return merged


def write(path, events):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(event, separators=(",", ":")) for event in events) + "\n]\n")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m horovod.timeline", description="Works on timelines of Horovod.")
    commands = parser.add_subparsers(dest="command", required=True)
    merging = commands.add_parser("merge", help="one timeline of those of many ranks, on one clock")
    merging.add_argument("out", help="the file to write")
    merging.add_argument("files", nargs="+", help="what the ranks have written")
    chosen = parser.parse_args(arguments)
    if chosen.out in chosen.files:
        parser.error(f"{chosen.out} is to be read and written; the first file named is the result")
    try:
        write(chosen.out, merge(chosen.files))
    except (NoTimeline, OSError) as error:
        sys.exit(f"python -m horovod.timeline: {error}")


if __name__ == "__main__":
    main()

"""Makes rows from records: the median over launches of each launch's median ratio, and the spread of all rounds."""
import statistics

from targets import TRAINED

UNSTEADY = 4  # greatest ratio of a comparison's rounds divided by the least, from which on its verdict is doubtful


def matching(records, wanted):
    return [record for record in records if all(record.get(key) == value for key, value in wanted.items())]


def evaluate(check, records):
    """Returns a row of the table as a dictionary; None if nothing was measured for it."""
    found = [record for record in matching(records, check.match) if check.peer in record["us"]]
    if check.ours == "ours_loop":
        loops = {record["launch"]: record for record in
                 matching(records, check.match | {"workload": "allreduce_loop"})}
        found = [record | {"us": record["us"] | {"ours_loop": loops[record["launch"]]["us"]["ours"]}}
                 for record in found
                 if record["launch"] in loops]
    found = [record for record in found if check.ours in record["us"]]
    if not found:
        return None
    medians, ratios, peers, ours = [], [], [], []
    for record in found:
        peer_us, our_us = record["us"][check.peer], record["us"][check.ours]
        if check.best_of_peer:
            peer_us = [min(peer_us)] * len(peer_us)
        each = [a / b for a, b in zip(peer_us, our_us)]
        ratios += each
        medians.append(statistics.median(each))
        peers.append(statistics.median(peer_us))
        ours.append(statistics.median(our_us))
    measured = statistics.median(medians)
    right = all(record.get("correct", {}).get(check.ours, True) and record.get("bit_exact", True) and
                record.get("same_parameters", True) for record in found)
    return {"row": check.row, "workload": check.workload, "peer": check.peer_name, "floor": check.floor,
            "target": check.target, "measured": measured, "least": min(ratios), "most": max(ratios),
            "peer_us": statistics.median(peers), "our_us": statistics.median(ours), "launches": len(found),
            "verdict": verdict(check, measured, right, why(check, records)) +
            (", UNSTEADY" if max(ratios) > UNSTEADY * min(ratios) else ""),
            "note": check.note}


def why(check, records):
    """Returns the reasons why a target is missed: the time that the cores need for the bare exchange, and other known
    reasons."""
    wanted = {"program": "data_plane", "workload": "core_exchange", "bytes": check.exchanged,
              "peer": check.match.get("peer")}
    bare = [statistics.median(record["us"]["cores"]) for record in matching(records, wanted)]
    reasons = []
    if bare:
        least = statistics.median(bare)
        reasons.append("the bare exchange between the cores takes " +
                       (f"{least:.3g}" if least < 1000 else f"{least:.0f}") +
                       " us here")
    return "; ".join(reasons + ([check.reason] if check.reason else [])) or "why is not known"


def verdict(check, measured, right, reason):
    if not right:
        return "WRONG RESULT"
    if check.target is None:
        return "for comparison"
    if measured >= check.target:
        return "reached"
    missing = f"missed by {100 * (1 - measured / check.target):.0f} %"
    if check.floor is not None and measured >= check.floor and check.floor < check.target:
        missing += ", above the floor"
    return f"{missing}: {reason}"


def values(records):
    """Returns measured values that are not ratios, as rows: name, value, target, verdict."""
    rows = []

    def add(row, name, number, unit, limit, other=None):
        verdict_text = ""
        if limit is not None:
            verdict_text = "reached" if number <= limit else f"missed by {number - limit:.3g} {unit}"
        rows.append({"row": row, "value": name, "measured": number, "unit": unit, "target": limit,
                     "verdict": verdict_text, "other": other or ""})

    submissions = matching(records, {"workload": "submission"})
    for key, name in (("ours_us", "one by one"), ("ours_together_us", "together")):
        if submissions:
            mine = statistics.median(statistics.median(record[key]) for record in submissions)
            cycle = statistics.median(statistics.median(record["cycle_1ms_us"]) for record in submissions)
            add("12", f"submitting 200 tensors, {name}, per tensor", mine / 200, "us", None,
                f"{cycle / mine:.1f}x less than the stand-in's table and queue under a mutex ({cycle / 200:.2f} us); "
                "upstream's was measured at 2.1 to 2.8 us on another machine, 20x of which is "
                f"0.12 us: {'reached' if mine / 200 <= 0.12 else 'missed'}")
    idle = matching(records, {"workload": "idle"})
    if idle:
        other = (f"the stand-in that wakes every 1 ms: {max(r['cycle_1ms_cores'][0] for r in idle):.3f} cores, "
                 f"{max(r['cycle_1ms_switches_per_s'][0] for r in idle):.0f} switches/s")
        add("12", "idle: processor time of our threads", max(r["ours_cores"][0] for r in idle), "cores", 0.005, other)
        add("12", "idle: context switches of our threads", max(r["ours_switches_per_s"][0] for r in idle), "1/s", 0)
    for ranks in (2, 4):
        for program, through in (("whole_library", "C"), ("python", "Python")):
            for workload, name, limit in (("one_8B_after_work", "8 B", 30),
                                          ("tiny_200_after_work", "200 tensors of 64 B", 250)):
                wanted = {"workload": workload, "program": program, "ranks": ranks}
                mine = [statistics.median(record["us"]["ours"]) for record in matching(records, wanted)]
                if mine:
                    add("W", f"{name} after 2 ms of other arithmetic, through {through}, {ranks} ranks",
                        statistics.median(mine), "us", limit)
    for model, name in TRAINED.items():
        found = [record["lost_us"] for record in matching(records, {"workload": "lost", "model": model})]
        if found:
            lost = {cause: statistics.median(each[cause] for each in found) for cause in found[0]}
            tensors = matching(records, {"workload": "lost", "model": model})[0]["tensors"]
            add("T", f"training step, {name}: main thread's work for each of {tensors} parameters",
                lost["main_thread"] / tensors, "us", 3 if model == "train_small_400" else None,
                f"a step takes {lost['whole']:.0f} us longer than alone: {lost['main_thread']:.0f} of the main thread, "
                f"{lost['engine']:.0f} of the engine, {lost['waiting']:.0f} of waiting for ranks and a core")
    for workload, name, limit in (("import_horovod", "import horovod", 100),
                                  ("import_horovod_torch", "import horovod.torch, after import torch", 100),
                                  ("horovodrun_4", "horovodrun -np 4 to the last rank's first line", 300)):
        for record in matching(records, {"program": "start", "workload": workload}):
            spread = f"{min(record['ms']):.0f} to {max(record['ms']):.0f} ms in {len(record['ms'])} starts"
            add("S", name, statistics.median(record["ms"]), "ms", limit, spread)
    return rows

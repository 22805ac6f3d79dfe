"""Telling people what came of a demo, and what they can do about what is left."""

from collections import Counter

from belay_core.demo.currencies import from_minor_units
from belay_core.demo.money import shown
from belay_core.demo.places import VARIABLE, Places
from belay_core.demo.report import HEAD, Ended, Report
from belay_core.demo.screen import Screen


def tell_places(screen: Screen, places: Places) -> None:
    """Where everything is, before anything happens: it is of use while the demo runs."""
    screen.say(f"everything is in {places.folder}")
    if places.names_secret:
        screen.say(f"the commands below expect {VARIABLE} to hold the database's URL")
    screen.say(f"from another terminal: {places.command('approvals')}")


def tell_report(screen: Screen, places: Places, report: Report) -> None:
    """The table, what stopped and what to do about it, and what the ledger says."""
    screen.end()
    screen.say()
    rows = [each.row() for each in report.ended]
    # An id begins with the time, which is nearly the same for all of them; its end tells them apart.
    screen.table(HEAD, rows, narrow=[(f"…{row[0][-8:]}", *row[1:]) for row in rows])
    _tell_stopped(screen, places, report)
    _tell_ledger(screen, places, report)
    _tell_kills(screen, report)
    figures = f"{_count(len(report.ended), 'run')}: {report.completed} completed, {report.stopped} stopped"
    screen.say()
    screen.say(f"{figures}, in {report.seconds:.1f} s")


def tell_interrupted(screen: Screen, places: Places, moving: int, not_started: int) -> None:
    """Where things are after Ctrl-C, and how to go on."""
    screen.end()
    screen.say()
    screen.say(f"interrupted; the workers have left in good order; runs that somebody has to go on with: {moving}")
    if places.names_secret:
        screen.say(f"  (with {VARIABLE} set to the database's URL)")
    screen.say(f"  {places.worker_command()}")
    screen.say(f"  {places.command('runs')}")
    if not_started:
        screen.say(f"{_count(not_started, 'document')} had no run yet; another demo begins with all of them")
    screen.say(f"the ledger and the filed documents are in {places.folder}")


def ways_out(each: Ended, places: Places) -> list[str]:
    """Why a run is stopped, and the commands that get it going, one a line."""
    match each.state:
        case "approval":
            verbs = ("approve", "reject")
            return ["it waits for a decision:", *(f"  {places.command(verb, each.run_id)}" for verb in verbs)]
        case "needs_review" if each.died_posting and each.postings:
            posting = each.postings[0].posting
            command = places.command("resolve", each.run_id, "--happened", str(posting))
            return [f"its worker was killed while it posted, and the ledger has it, as {posting}:", f"  {command}"]
        case "needs_review" if each.died_posting:
            command = places.command("resolve", each.run_id, "--retry")
            return ["its worker was killed while it posted, and the ledger does not have it:", f"  {command}"]
        case "needs_review":
            return ["it needs an operator:", f"  {places.command('explain', each.run_id)}"]
        case "failed":
            return [each.error]
        case _:
            return [each.state]


def _tell_stopped(screen: Screen, places: Places, report: Report) -> None:
    stopped = [each for each in report.ended if each.is_stopped]
    if not stopped:
        return
    screen.say()
    screen.say("stopped:")
    for each in stopped:
        first, *more = ways_out(each, places)
        screen.say(f"  {each.task.name}: {first}")
        for line in more:
            screen.say(f"  {line}")
    if any(each.state in {"approval", "needs_review"} for each in stopped):
        screen.say("  and then, to go on with what was decided:")
        screen.say(f"    {places.worker_command()}")


def _tell_ledger(screen: Screen, places: Places, report: Report) -> None:
    audit = report.audit
    screen.say()
    screen.say(
        f"the ledger, {places.ledger}, has {_count(audit.postings, 'posting')}, {report.posted_twice} of them twice:"
    )
    for balance in audit.balances:
        amount = shown(from_minor_units(balance.amount_minor, balance.currency), balance.currency)
        screen.say(f"  {balance.postings} in {balance.currency}, together {amount}")
    if audit.documents_twice:
        number = _count(len(audit.documents_twice), "document")
        screen.say(f"  {number} came more than once, to the byte, and was approved each time")
    counts = Counter(_accounted(each) for each in report.ended)
    for what, count in counts.items():
        screen.say(f"  {_count(count, 'run')}: {what}")
    for each in report.wrong:
        screen.say(f"  WRONG: run {each.run_id} of {each.task.name} has {_count(len(each.postings), 'posting')}")
    if report.strays:
        screen.say(f"  WRONG: {report.strays} postings belong to none of the runs")


def _accounted(each: Ended) -> str:
    if each.state == "completed":
        return "completed as rejected, and not posted" if each.is_rejected else "completed, and posted exactly once"
    return f"stopped ({each.state}), and {'posted once' if each.postings else 'not posted'}"


def _tell_kills(screen: Screen, report: Report) -> None:
    if not report.kills:
        return
    hits = report.hits
    runs = {hit.run_id for hit in hits}
    again = f", {len(hits)} times in all" if len(hits) > len(runs) else ""
    screen.say()
    screen.say(f"{_count(len(report.kills), 'worker')} killed, with {_count(len(runs), 'run')} in hand{again}")
    taken = [hit.resumed_after for hit in hits if hit.resumed_after is not None]
    if taken:
        slowest = f"the slowest {max(taken) / 1000:.1f} s after the kill"
        screen.say(f"{_count(report.resumed, 'run')} resumed by other workers, {slowest}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

"""Invariants, checked against the state of the simulated EC2. See docs/guarantees.md."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from math import inf

from simulation.api import CREATING, moment, tags_in
from simulation.history import SECOND_HOME
from simulation.requests import DISK_USD_PER_HOUR, USD_PER_HOUR, WANTED, asked, digests
from simulation.world import PAUSED

from tgi_deploy.errors import ConflictError, DeployError, InputError
from tgi_deploy.reconcile.ends import certain_end, ends_of
from tgi_deploy.reconcile.errors import ClaimedError
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, TAG_OWNER, TAG_UPDATE, revision_of

# How long a new resource may be invisible, so another computer may miss it in a removal.
_UNSEEN_S = 60.0
_ENDLESS_STEPS = 20_000
CENT = Decimal("0.01")
UPS = ("up", "rollback")
_RECORDED = ("instance", "security-group", "launch-template", "address")
_SWITCHING = {"stop_instances": "stopping", "start_instances": "starting", "reboot_instances": ""}
_SCHEME = re.compile(r"--quantize[^a-z]+([a-z0-9]+)")
_DELETING = {
    "terminate_instances": "InstanceIds",
    "delete_security_group": "GroupId",
    "delete_launch_template": "LaunchTemplateId",
    "delete_volume": "VolumeId",
    "delete_network_interface": "NetworkInterfaceId",
    "release_address": "AllocationId",
}
# Errors that a command may have without faults: someone else has the name, or there is nothing to act on.
_LAWFUL = frozenset(
    {"name_taken", "unknown_deployment", "machine_missing", "already_ending", "no_lease", "max_spend_reached"}
)


def owner_of(user):
    """Return a user's name in tags."""
    person = 0 if user == SECOND_HOME else user
    return f"user{person}@computer{person}"


class Invariants:
    """`broken` collects (invariant, observation), each invariant once."""

    def __init__(self, run):
        self._run = run
        self.broken = []
        self._began = {}
        self._receipted = {}
        self._started = {}
        self._restarted = {}
        self._recorded = set()
        self._deleted = set()
        self._inherited = set()
        self._served = {}
        self._downs = []

    def _check(self, holds, name, text):
        if not holds and name not in {known for known, _ in self.broken}:
            self.broken.append((name, f"at {self._run.schedule.now:.1f} s: {text}"))

    # At every step

    def before_call(self, program, what, parameters, region):
        """Check the preconditions of a request."""
        if what in CREATING:
            self._intent_before_call(program, what, parameters)
        if what == "run_instances":
            self._ends_and_claims_first(program, parameters, region)
            self._room_made(program)
        if what == "terminate_instances":
            known = (self._run.world.things.get(thing_id) for thing_id in parameters["InstanceIds"])
            for machine in (thing for thing in known if thing is not None and thing.alive):
                program.ended_machines.add(machine)
                self._rolls(program, machine)
        if what == "associate_address":
            self._moves(program, self._run.world.things.get(parameters["AllocationId"]), parameters["InstanceId"])
        if what in _SWITCHING:
            self._switches(program, what, parameters["InstanceIds"])
        if what in _DELETING:
            ids = parameters[_DELETING[what]]
            for thing_id in (ids,) if isinstance(ids, str) else ids:
                self._may_delete(program, self._run.world.things.get(thing_id))

    def after_step(self):
        self._run.schedule.steps += 1
        self._check(self._run.schedule.steps < _ENDLESS_STEPS, "ends", "there is no end to it")
        self._one_machine()

    def after_save(self, program, deployment):
        """Check a record: at most one revision is pending, and the active one serves."""
        self._recorded.update((program.command.user, item.attributes.get("id")) for item in deployment.resources)
        machine = self._run.world.things.get(_machine_id(deployment))
        serves = deployment.status == "ready" and (machine is None or machine.alive)
        elsewhere = self._restarted.get(_machine_id(deployment), set()) - {program.command.user}
        proved = not serves or elsewhere or (machine is not None and machine.proved)
        self._check(proved, "proof before ready", f"{_machine_id(deployment)} is recorded as ready and was not proved")
        if deployment.rollout is not None:
            program.updates = deployment.rollout.source
        pending = [item.number for item in deployment.revisions if item.state == "pending"]
        serving = [item.number for item in deployment.revisions if item.state == "serving"]
        active = [] if deployment.active is None else [deployment.active]
        sound = len(pending) <= 1 and serving == active
        self._check(sound, "revisions", f"pending {pending}, serving {serving}, active {deployment.active}")

        if serves and deployment.current.spec is not None:
            revision = deployment.id, deployment.active
            digest = self._served.setdefault(revision, deployment.current.spec.digest)
            self._check(digest == deployment.current.spec.digest, "one update wins", f"{revision} serves two specs")

    def after_copy(self, user):
        """Count the resources of a copied record as the user's, including what its intents have created."""
        self._inherited |= {(user, thing_id) for known, thing_id in self._recorded if known == 0}
        killed = {program.number for program in self._run.programs if program.command.user == 0 and program.dead}
        self._inherited |= {(user, thing.id) for thing in self._run.world.things.values() if thing.maker in killed}
        self._recorded |= self._inherited

    def after_time(self):
        self._one_machine()
        self._found()
        self._appeared()

    def _intent_before_call(self, program, what, parameters):
        tags = self._tags_of(parameters)
        record = self._record(program, tags)
        known = record and record.record(tags.get(TAG_KEY, ""))
        self._check(
            known is not None and known.state == "intent",
            "intent before call",
            f"{what} of {tags.get(TAG_KEY)} with {known and known.state}",
        )

    def _switches(self, program, what, ids):
        """Check that a stop or start is on the user's record first."""
        if what != "stop_instances":
            for machine_id in ids:
                self._restarted.setdefault(machine_id, set()).add(program.command.user)
        if what == "start_instances":
            for machine_id in ids:
                self._started.setdefault(machine_id, set()).add(program.command.user)
        state = _SWITCHING[what]
        record = self._run.homes[program.command.user].load(program.command.name)
        if state and record is not None and _machine_id(record) in ids:
            self._check(record.machine.state == state, "intent before call", f"{state} {ids}: {record.machine.state}")

    def _record(self, program, tags):
        return self._run.homes[program.command.user].load(tags.get(TAG_NAME))

    def _tags_of(self, parameters):
        """Return the tags that a request gives to its first resource."""
        return next(iter(tags_in(parameters.get("TagSpecifications", ())).values()), {})

    def _ends_and_claims_first(self, program, parameters, region):
        tags, world = self._tags_of(parameters), self._run.world
        for kind in ("security-group", "launch-template"):
            claims = [
                item for item in world.of(kind, region) if item.states[0][1]["tags"].get(TAG_ID) == tags.get(TAG_ID)
            ]
            self._check(claims, "claims before the machine", f"a machine is asked for without its {kind}")
        ends = ends_of(None, [tags])
        wanted = {} if program.command.verb == "rollback" else asked()[program.command.plan].ends
        has = {end.reason for end in ends}
        expected = {"ttl": "ttl_s", "lease": "lease_s", "idle": "idle_s"}
        missing = [reason for reason, option in expected.items() if option in wanted and reason not in has]
        self._check(not missing, "ends before the machine", f"it lacks {missing}")

    def _room_made(self, program):
        """Check that a machine removed by `recreate` is terminated before another one is requested."""
        ending = sorted(machine.id for machine in program.ended_machines if machine.exists)
        self._check(not ending, "gone before the next", f"{ending} are not gone when the next machine is asked for")

    def _moves(self, program, address, machine_id):
        """Check that an address moves only to a proved machine, and never away from a serving one."""
        machine = self._run.world.things.get(machine_id)
        holder = self._run.world.holder_of(address) if address is not None else None
        proved = machine is None or machine.proved or not machine.alive
        self._check(proved, "proof before promotion", f"{machine_id} gets the address and was not proved")
        drained = holder is None or holder is machine or not (holder.alive and holder.proved)
        self._check(drained, "drained before it goes", f"command {program.number} takes an address from {holder}")

    def _rolls(self, program, machine):
        """Check that a rolling update keeps the serving machine until the next is promoted, and drains it first."""
        record = self._run.homes[program.command.user].load(program.command.name)
        rollout = record.rollout if record is not None and program.command.verb in UPS else None
        if record is not None and program.command.verb in UPS and machine.id == _machine_id(record):
            begun = rollout is not None or record.status != "ready"
            self._check(begun, "intent before call", f"{machine.id} serves and is ended, with no update on record")
            stays = program.command.verb == "up" and self._looked_at(program) == {machine.region}
            if rollout is not None and rollout.stage == "ending" and stays:
                self._claimed(machine, record.wanted.update)
        if rollout is None or rollout.strategy != "rolling" or not machine.proved:
            return
        serves = rollout.stage == "starting" and machine.id == _machine_id(record)
        self._check(not serves, "what serves stays", f"{machine.id} is ended before the next is promoted")
        drained = rollout.stage != "promoted"
        self._check(drained, "drained before it goes", f"{machine.id} is ended with its requests open")

    def _claimed(self, machine, update):
        """Check that an update claims its revision before the machine is removed, so that a second update backs off."""
        claims = any(thing.exists and thing.tags.get(TAG_UPDATE) == update for thing in self._run.world.things.values())
        self._check(claims, "claims before the end", f"{machine.id} is ended, and nothing says for which update")

    def _may_delete(self, program, thing):
        if thing is None or thing.now is None:
            return
        self._on_record(program, thing)
        if program.command.verb == "gc" and not program.command.plan:
            self._spared_by_gc(thing)
        if program.command.verb in UPS:
            record = self._run.homes[program.command.user].load(program.command.name)
            mine = record is not None and thing.tags.get(TAG_ID) == record.id
            self._check(mine, "up spares others", f"{thing.id} of {thing.tags.get(TAG_ID)} is deleted by another's up")
            self._spares_others(program, thing)

    def _spares_others(self, program, thing):
        """Check that an `up` removes only resources that its own user created or knew of."""
        maker = self._run.programs[thing.maker]
        own = maker.command.user == program.command.user or (program.command.user, thing.id) in self._inherited
        in_use = thing.alive or not (maker.ended or maker.dead)
        text = f"{thing.id}, which {thing.tags.get(TAG_OWNER)} has made, is ended by another's up"
        self._check(own or not in_use, "up spares others", text)

    def _on_record(self, program, thing):
        """Check that resources stay on record until they are deleted, so that a killed run can be resumed."""
        user = program.command.user
        first = (user, thing.id) not in self._deleted
        self._deleted.add((user, thing.id))
        record = self._run.homes[user].load(thing.tags.get(TAG_NAME))
        if first and record is not None and record.id == thing.tags.get(TAG_ID):
            forgotten = (user, thing.id) in self._recorded and record.record(thing.tags.get(TAG_KEY, "")) is None
            self._check(not forgotten, "on record until gone", f"{thing.id} is deleted and not on record any more")

    def _spared_by_gc(self, thing):
        """Check that `gc` removes neither resources being created nor a machine that may be in use."""
        deployment_id = thing.tags.get(TAG_ID)
        records = [item for item in self._run.all_records() if item.id == deployment_id]
        names = {(item.owner, item.name) for item in records}
        making = [
            item.number
            for item in self._run.programs
            if item.command.verb in UPS
            and item.gate is not None
            and not (item.ended or item.dead)
            and (owner_of(item.command.user), item.command.name) in names
        ]
        self._check(not making, "gc spares what is used", f"gc deletes {thing.id} while command {making} is making it")
        if thing.kind != "instance" or not thing.alive:
            return
        end = certain_end(ends_of(None, [thing.tags]))
        over = end is not None and moment(self._run.schedule.now) > end
        removing = any(record.status == "deleting" for record in records)
        self._check(over or removing, "gc spares what is used", f"gc ends {thing.id}, which runs and may be in use")

    def _one_machine(self):
        """Check that a deployment has at most one machine, in a rolling update two."""
        billed = {}
        for machine in self._run.world.machines if len(self._run.world.machines) > 1 else ():
            if machine.alive or machine.state in PAUSED:
                billed.setdefault(machine.tags.get(TAG_ID, machine.id), []).append(machine)
        many = [
            [machine.id for machine in machines]
            for name, machines in billed.items()
            if len(machines) > 1 and len(machines) > self._most_of(name, machines)
        ]
        self._check(not many, "one machine", f"{many} are billed at once")

    def _most_of(self, deployment_id, machines):
        """Return two in a rolling update, while the machine of a withdrawn one is being deleted, and in an update whose
        old machine is found stopped.
        """
        mine = [item for item in self._run.all_records() if item.id == deployment_id]
        stopped = any(machine.state in PAUSED for machine in machines)
        rolls = any(item.rollout is not None and (item.rollout.strategy == "rolling" or stopped) for item in mine)
        return 2 if rolls or any(map(_takes_back, mine)) else 1

    def _found(self):
        """Check that every machine can be found, by its tags or by its creator's record."""
        known = {item.attributes.get("id") for record in self._run.all_records() for item in record.resources}
        working = {program.number for program in self._run.programs if not (program.ended or program.dead)}
        for machine in self._run.world.machines:
            tagged = {TAG_NAME, TAG_ID, TAG_KEY} <= machine.tags.keys()
            lost = machine.alive and not tagged and machine.id not in known and machine.maker not in working
            self._check(not lost, "no leak", f"{machine.id} is billed, and neither tags nor records lead to it")

    # After every command

    def before_command(self, program):
        self._began[program.number] = self._run.schedule.now

    def after_command(self, program, outcome):
        self._found()
        self._one_machine()
        error = outcome.error
        self._check(
            error is None or (isinstance(error, DeployError) and error.code != "internal_error"),
            "errors have codes",
            f"{program.command.verb}: {error!r} caused by {getattr(error, 'cause', None)!r}",
        )
        if error is not None and "has no tags of this tool" in str(error):
            holders = [
                item
                for item in self._run.world.things.values()
                if item.exists and item.now.get("name") and item.maker is None
            ]
            self._check(holders, "errors are true", f"{program.command.verb} of {program.command.name}: {error}")
        if isinstance(error, DeployError):
            self._goes_back(program, error)
            self._names_the_other(error)
        if not outcome.killed:
            self.what_is_left_is_on_record(program)
        if outcome.done and program.command.verb in UPS:
            self._after_up(program, outcome)
        if program.command.verb == "down":
            self._served.clear()  # a run that resumes the rest may serve something else
        if outcome.done and program.command.verb == "down":
            self._after_down(program, outcome)
        if outcome.done and program.command.verb == "extend":
            self._after_extend(outcome)
        if outcome.done and program.command.verb == "stop":
            self._stops(program, self._run.world.things[outcome.result.machine_id])

    def _stops(self, program, machine):
        """Check that it is stopped, or was when `stop` last checked: others may have terminated or started it since."""
        since = self._began[program.number]
        was = any(at >= since and members and members["state"] == "stopped" for at, members in machine.states)
        self._check(was or machine.state == "stopped", "stop stops", f"{machine.id} is {machine.state}")

    def _names_the_other(self, error):
        """Check that the loser's error names the owner of the name or the update."""
        thing = self._run.world.things.get(error.data.get("id")) if isinstance(error, ClaimedError) else None
        if thing is not None:
            owner = thing.tags[TAG_OWNER]
            self._check(owner in error.message, "errors are true", f"{owner} has {thing.id}, and {error.message}")

    def _goes_back(self, program, error):
        """Check that an update whose proof fails restores the old revision, or reports that it could not. If its own
        resources can't be removed, nothing is restored, because there might be two machines.
        """
        if error.code != "wrong_model" or program.updates is None:
            return
        record = self._run.homes[program.command.user].load(program.command.name)
        serves_on = record is not None and record.active is not None
        reported = serves_on or "restored" in error.data or error.data.get("outcome") != "removed"
        self._check(reported, "updates go back", f"{error!r} restores nothing")
        if error.data.get("restored") and program.command.waits:
            back = record.status == "ready" and record.rollout is None
            self._check(back, "updates go back", f"{record.status} with {record.rollout} after {error!r}")

    def what_is_left_is_on_record(self, program):
        """Check that everything a command left is on its user's record, or has an open intent there.

        Addresses have no token: of two from a request that arrived twice, `down` finds the first by its tags.
        """
        doubled = any(fault.kind == "doubled" for fault in self._run.history.faults)
        for thing in self._run.world.things.values():
            if thing.maker != program.number or thing.kind not in _RECORDED or not (thing.exists and thing.tags):
                continue
            record = self._record(program, thing.tags)
            known = record and record.record(thing.tags.get(TAG_KEY, ""))
            on_record = known is not None and known.attributes.get("id", thing.id) == thing.id
            going = thing.kind == "instance" and not thing.alive
            second = thing.kind == "address" and doubled
            text = f"{thing.id} is left, and {known} on record"
            self._check(on_record or going or second, "what is left is on record", text)

    def _after_extend(self, outcome):
        """Check that the machine has the tags of the requested limits; others may be as old as the read."""
        machine, wanted = self._run.world.things[outcome.result.machine_id], WANTED[outcome.command.plan]
        moved = {"ttl"} if wanted.ttl_s or wanted.max_spend_usd else {"idle"} if wanted.idle_s else {"lease"}
        truth = {(end.reason, end.at) for end in ends_of(None, [machine.tags])}
        shown = {(end.reason, end.at) for end in outcome.result.ends if end.reason in moved}
        self._check(shown <= truth, "extend moves the end", f"{machine.id} has {truth}, and {shown} was shown")

    def _after_up(self, program, outcome):
        deployment, name = outcome.result.deployment, program.command.name
        place = deployment.machine.place if deployment.machine else ""
        others = [
            machine.id
            for machine in self._run.world.machines
            if machine.alive
            and {machine.region, place} <= self._looked_at(program) & self._looked_at(self._run.programs[machine.maker])
            and machine.tags.get(TAG_NAME) == name
            and machine.tags.get(TAG_ID) != deployment.id
            and self._is_served(machine)
        ]
        self._check(
            not others, "one owner", f"up of {deployment.id} succeeds while {others} serve '{name}' for another"
        )
        machine = self._run.world.things.get(_machine_id(deployment))
        since = self._began[program.number] - _UNSEEN_S
        lives = machine is not None and (machine.ends_at is None or machine.ends_at > since)
        self._check(lives, "up has a machine", f"up succeeds with {deployment.machine}")
        if machine is not None:
            self._runs_what_was_asked_for(program, deployment, machine)
            self._has_its_address(program, deployment, machine)

    def _has_its_address(self, program, deployment, machine):
        """Check that the URL uses the deployment's address, which the machine has."""
        if not (program.command.static and program.command.waits and machine.alive):
            return
        ips = [item.now["ip"] for item in self._run.world.of("address", machine.region) if item.now]
        has = self._run.world.address_of(machine, machine.now)
        self._check(has in ips and f"//{has}:" in deployment.endpoint, "the URL stays", f"{deployment.endpoint}: {ips}")

    def _runs_what_was_asked_for(self, program, deployment, machine):
        """Check that the machine runs the recorded and requested spec, and that its caller may connect to it."""
        revision = deployment.current
        scheme = _SCHEME.search(machine.user_data)
        runs = scheme[1] if scheme else "none"
        planned = revision.plan.chosen.quantize
        self._check(runs == planned, "up does what it says", f"{machine.id} runs {runs}, and {planned} is on record")
        intended = program.command.verb == "rollback" or revision.spec.digest in digests(program.command.plan)
        self._check(intended, "up does what it says", f"{machine.id} runs {planned} after plan {program.command.plan}")
        groups = [self._run.world.things[item] for item in machine.groups]
        closed = [group.id for group in groups if group.now is not None and not group.now["rules"]]
        self._check(not closed, "up lets its caller in", f"nobody may connect through {closed}")
        self._opens_what_was_named(program, [group for group in groups if group.now is not None])

    def _opens_what_was_named(self, program, groups):
        """Check that exactly the networks that `up` names may connect, if it can read the rules."""
        named, verb = asked()[program.command.plan].cidrs, program.command.verb
        rules = {rule for group in groups for rule in group.now["rules"]}
        missing = [cidr for cidr in named if verb == "up" and not any(f'"{cidr}"' in rule for rule in rules)]
        self._check(not missing, "up lets its caller in", f"{missing} may not connect")
        history = self._run.history
        sees = not history.faults and "security-group" not in history.late_s
        alone = all(item is program or item.ended for item in self._run.programs if item.gate is not None)
        if named and verb == "up" and sees and alone:
            others = [rule for rule in rules if not any(f'"{cidr}"' in rule for cidr in named)]
            self._check(not others, "up shuts others out", f"{others} may connect, and {named} are named")

    def _looked_at(self, program):
        """Return the regions of a program's plan: a name belongs to its owner in one of these."""
        wanted = asked()[program.command.plan].plan
        return {candidate.offer.region for candidate in (wanted.chosen, *wanted.fallbacks)}

    def _is_served(self, machine):
        """Return whether a successful `up` has reported it."""
        return any(
            outcome.done
            and outcome.command.verb in UPS
            and outcome.result.deployment.machine
            and outcome.result.deployment.machine.attributes.get("id") == machine.id
            for outcome in self._run.outcomes
        )

    def _after_down(self, program, outcome):
        """Check that this user's resources, and all visible ones of the name, are deleted."""
        name, began = program.command.name, self._began[program.number]
        left = [
            thing.id
            for thing in self._run.world.things.values()
            if _counts(thing) and thing.tags.get(TAG_NAME) == name and self._was_his(program, thing, began)
        ]
        self._check(not left, "down leaves nothing", f"down of '{name}' succeeds and leaves {left}")
        self._downs.append((program, began, self._run.schedule.now))
        self._receipts(program, outcome)

    def _appeared(self):
        """Check that no resource of this user's earlier requests appears after a `down` that found nothing."""
        for program, began, ended in self._downs:
            late = [
                thing.id
                for thing in self._run.world.things.values()
                if thing.made_at > ended
                and thing.maker is not None
                and thing.tags.get(TAG_NAME) == program.command.name
                and self._run.programs[thing.maker].command.user == program.command.user
                and self._ended_s(self._run.programs[thing.maker]) < began
            ]
            self._check(not late, "down leaves nothing", f"{late} appear after the down of '{program.command.name}'")

    def _was_his(self, program, thing, began):
        maker = self._run.programs[thing.maker]
        if not (maker.ended or maker.dead) or self._ended_s(maker) > began:
            return False
        return maker.command.user == program.command.user or thing.made_at < began - _UNSEEN_S

    def _ended_s(self, program):
        return next(item.ended_s or inf for item in self._run.outcomes if item.number == program.number)

    def after_receipt(self, program, file_name, text):
        document = json.loads(text)
        self._receipted[program.command.user, file_name] = document
        lines, total = document["resources"], document["cost"]["usd"]
        summed = sum(Decimal(line["usd"]) for line in lines if line["usd"] is not None)
        self._check(total is None or Decimal(total) == summed, "receipts add up", f"{summed} are {total} together")

    def _receipts(self, program, outcome):
        """Check that every machine known to this user is on a receipt of its deployment, at its price."""
        ids, user = {receipt.id for receipt in outcome.result.receipts}, program.command.user
        documents = [item for (known, _), item in self._receipted.items() if known == user and item["id"] in ids]
        for machine in self._run.world.machines:
            if (user, machine.id) in self._run.known and machine.tags.get(TAG_ID) in ids:
                self._is_billed(user, machine, documents)

    def _is_billed(self, user, machine, documents):
        """Check the bill. If a machine is on several receipts (an unfinished removal), the last one counts."""
        found = [[line for line in item["resources"] if line["id"] == machine.id] for item in documents]
        lines = max(found, key=lambda lines: sum(Decimal(line["usd"] or 0) for line in lines), default=[])
        self._check(lines, "receipts add up", f"{machine.id} is on no receipt")
        if not lines:
            return
        usd = sum(Decimal(line["usd"] or 0) for line in lines)
        seen = all(line["removed_is"] == "observed" for line in lines)
        least, most = bill_of(machine, self._run.schedule.now)
        apart_s, late_s = self._apart_s()
        price = price_of(machine) / 3600
        unseen = self._started.get(machine.id, set()) - {user}  # nobody here has seen it run, or end
        enough = (unseen and not seen) or usd >= least - price * apart_s - CENT
        self._check(enough, "receipts add up", f"{machine.id} has cost {least:.4f} at least, {usd} are on its receipt")
        rested = any(members and members["state"] == "stopped" for _, members in machine.states)
        fair = not seen or (rested and self._run.history.faults) or usd <= most + price * (apart_s + late_s) + CENT
        self._check(fair, "receipts add up", f"{machine.id} has cost {most:.4f} at most, {usd} are on its receipt")

    def _apart_s(self):
        """Return the clock skew of this history, plus how late something may become visible."""
        history = self._run.history
        ahead_s = [0.0, *(command.ahead_s for command in history.commands)]
        trouble_s = sum(event.seconds for event in history.events) + 60 * len(history.faults)
        return Decimal(max(ahead_s) - min(ahead_s)), Decimal(2 * _UNSEEN_S + trouble_s)

    # At the end

    def did_not_converge(self, outcome):
        command = outcome.command
        text = f"{command.verb} {command.name} of user {command.user}: {outcome.error!r} every time"
        self._check(holds=False, name="converges", text=text)

    def settled(self):
        """Check that after all commands are repeated, every name has at most one machine.

        An interrupted update stays as it is where --max-spend is too low for another one.
        """
        errors = ((item.command.name, getattr(item.error, "code", "")) for item in self._run.outcomes)
        refused = {name for name, code in errors if code == "max_spend_reached"}
        unfinished = {item.name for item in self._run.all_records() if item.rolling and item.name in refused}
        alive = {}
        for machine in self._run.world.machines:
            if machine.alive:
                alive.setdefault((machine.region, machine.tags.get(TAG_NAME)), []).append(machine.id)
        many = {where: ids for where, ids in alive.items() if len(ids) > 1 + (where[1] in unfinished)}
        self._check(not many, "one machine", f"at the end: {many}")

    def nothing_runs(self):
        running = [machine.id for machine in self._run.world.machines if machine.exists]
        self._check(not running, "machines end by themselves", f"days later there are {running}")

    def nothing_left(self):
        self._run.pass_time(3600.0)
        left = [thing.id for thing in self._run.world.things.values() if _counts(thing) and thing.tags]
        self._check(not left, "nothing is left at the end", f"{left}")


def price_of(machine):
    """Return what EC2 bills for an hour in which a machine runs, with its disk."""
    return USD_PER_HOUR[machine.states[0][1]["type"], machine.states[0][1]["spot"]] + DISK_USD_PER_HOUR


def bill_of(machine, now):
    """Return the lower and upper bound of a machine's cost, which exclude and include its start and shutdown. A
    terminated machine that is still listed costs nothing.
    """
    least = most = Decimal(0)
    ends = [at for at, _ in machine.states[1:]]
    for (since, members), until in zip(machine.states, [*ends, now], strict=True):
        hours = Decimal(until - since) / 3600
        if members is None or members["state"] == "terminated":
            continue
        rests = members["state"] == "stopped"
        most += hours * (DISK_USD_PER_HOUR if rests else price_of(machine))
        if members["state"] in {"running", "stopped"}:
            least += hours * (DISK_USD_PER_HOUR if rests else price_of(machine))
    return least, most


def _takes_back(deployment):
    revisions = (deployment.numbered(revision_of(machine.key)) for machine in deployment.machines)
    return any(revision is not None and revision.state == "failed" for revision in revisions)


def is_lawful(error):
    return getattr(error, "code", "") in _LAWFUL and isinstance(error, (ConflictError, InputError))


def _machine_id(deployment):
    return deployment.machine.attributes.get("id") if deployment.machine else None


def _counts(thing):
    """Return whether it exists and must be removed: terminated machines and closed requests are only listed."""
    if thing.kind == "spot-request":
        return thing.now is not None and thing.now["state"] in {"open", "active"}
    return thing.exists

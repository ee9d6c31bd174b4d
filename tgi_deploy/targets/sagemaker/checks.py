"""Finds what would make a launch fail or cost more than planned, before anything is created.

A quota that can't be read is unknown, which is not 0.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tgi_deploy import bounded_json
from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.catalog.hosting import read_hosting
from tgi_deploy.errors import DeployError, error, ok, warning
from tgi_deploy.reconcile.errors import PermissionDeniedError, ResourceNotFoundError
from tgi_deploy.targets.aws.api import each
from tgi_deploy.targets.deployable import HUB_TOKEN
from tgi_deploy.targets.reply import ReplyError
from tgi_deploy.targets.sagemaker.alarms import ALARM, Alarms
from tgi_deploy.targets.sagemaker.names import PREFIX, revision_name
from tgi_deploy.targets.sagemaker.options import NAME
from tgi_deploy.targets.sagemaker.requests import longest_answer_s, pools
from tgi_deploy.text import usd
from tgi_deploy.values.names import default_name
from tgi_deploy.values.resource import TAG_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.targets.sagemaker.options import SageMakerOptions
    from tgi_deploy.values.plan import Candidate, Plan

POLICY: Final = "'tgi-deploy doctor --policy --target sagemaker' prints what is needed"
# The price list has an endpoint in few regions, and every region's prices in each.
_PRICE_LIST_REGION: Final = "us-east-1"
_ENDING: Final = " for endpoint usage"
_BROKEN: Final = frozenset({"no_credentials", "bad_credentials", "unknown_aws_profile", "cloud_unreachable"})
# Prices have up to ten digits after the point, and listings round them.
_SAME: Final = Decimal("0.005")
# No machine costs as much an hour, in USD.
_TOO_MUCH: Final = 100_000
_WATCH: Final = "cloudwatch:DescribeAlarms"
_NO_ALARM: Final = "--strategy recreate removes the endpoint first"
# In the names of the buckets that a created role may read, by its permissions boundary.
_READABLE: Final = "sagemaker"


def examined(api: Api, plan: Plan | None, options: SageMakerOptions) -> tuple[Problem, ...]:
    """Return what `doctor` finds: your identity, the usable types and, with a plan, what would make it fail."""
    found = identity(api)
    if found.severity == "error":
        return (found,)
    if plan is None:
        return (found, _usable(api))
    watching: tuple[Problem, ...] = ()
    if options.role is not None:
        alarm = revision_name(default_name(plan.request.model.name), 2)
        watching = tuple(_watching(api, options.role, alarm, warning))
    return (found, *findings(api, plan, options), *watching)


def identity(api: Api) -> Problem:
    def read(reply: Reply) -> Problem:
        arn = reply.text("Arn")
        return ok("identity", arn, account=reply.text("Account"), arn=arn)

    try:
        return api.ask("get_caller_identity", "reading your identity", read, service="sts")
    except DeployError as problem:
        return _unanswered(problem)


def findings(
    api: Api, plan: Plan, options: SageMakerOptions, *, at_once: Mapping[str, int] | None = None
) -> tuple[Problem, ...]:
    """Return what is known before a launch: quotas, prices, and whether the weights can be read.

    `at_once`: how many machines of a type an update needs, the former ones included.
    """
    return (
        *_weights(plan, options),
        *_boundary(api, options),
        *_quota(api, plan, at_once or {}),
        _price(api, plan),
        *_pools(plan),
        *_cuts(plan),
    )


def _boundary(api: Api, options: SageMakerOptions) -> Iterator[Problem]:
    """Yield whether the account lacks the permissions boundary of created roles, or has another version of it."""
    if not options.create_role:
        return
    boundary = read_actions(NAME).boundary
    doing = "looking for the permissions boundary"
    try:
        account, partition = api.ask("get_caller_identity", "reading your identity", _account, service="sts")
        arn = boundary.arn(account, partition)
        version = api.ask("get_policy", doing, _version, service="iam", PolicyArn=arn)
        there = api.ask("get_policy_version", doing, _document, service="iam", PolicyArn=arn, VersionId=version)
        if there != boundary.document(partition):
            printed = f"'tgi-deploy doctor --policy --boundary --target {NAME}'"
            message = f"{arn} differs from {printed}: roles may lack permissions"
            yield warning("boundary_differs", message, boundary.renewal(arn))
    except ResourceNotFoundError:
        message = f"the account has no policy {boundary.name!r}, which every created role carries"
        yield error("boundary_missing", message, f"run once, as an administrator of the account: {boundary.creation}")
    except DeployError as problem:
        yield _unanswered(problem)


def alarm_findings(api: Api, role: str | None, alarm: str, deployment_id: str) -> Iterator[Problem]:
    """Yield why an update's alarm could not be created, or not be read by the endpoint's own `role`."""
    try:
        found = Alarms(api).read({"id": f"{ALARM}/{alarm}"})
    except DeployError as problem:
        yield problem.problem
        return
    if found is not None and found.tags.get(TAG_ID) != deployment_id:
        taken = f"the alarm {alarm} exists in {api.region}, and this deployment did not create it"
        yield error("name_taken", taken, f"remove it, or update without an alarm: {_NO_ALARM}")
    if role is not None:
        yield from _watching(api, role, alarm, error)


def _watching(api: Api, role: str, alarm: str, make: Callable[..., Problem]) -> Iterator[Problem]:
    """Yield whether a role may not read an alarm, by IAM's own simulation of its policies, as `make` of a problem."""
    _, partition, _, _, account, name = role.split(":", 5)
    resource = f"arn:{partition}:cloudwatch:{api.region}:{account}:alarm:{alarm}"
    allowing = {"Effect": "Allow", "Action": _WATCH, "Resource": f"{resource.removesuffix(alarm)}{PREFIX}*"}
    doing = f"simulating what {role} may do"
    try:
        decisions = api.ask("simulate_principal_policy", doing, each("EvaluationResults", _decision), service="iam",
                            PolicySourceArn=role, ActionNames=[_WATCH], ResourceArns=[resource])  # fmt: skip
    except ResourceNotFoundError:
        yield error("role_unusable", f"there is no role {role}", "name another with --role, or use --create-role")
        return
    except DeployError as problem:
        yield _unanswered(problem)
        return
    if not decisions:
        yield warning("not_checked", f"IAM's simulation of what {role} may do has no result")
    elif any(decision != "allowed" for decision in decisions):
        document = json.dumps({"Version": "2012-10-17", "Statement": [allowing]})
        words = ("aws", "iam", "put-role-policy", "--role-name", name.rpartition("/")[2])
        command = shlex.join((*words, "--policy-name", "tgi-deploy-alarms", "--policy-document", document))
        yield make(
            "role_insufficient",
            f"{role} may not call {_WATCH} on {alarm}, which SageMaker needs to update an endpoint with an alarm",
            f"{command}; or update without an alarm: {_NO_ALARM}",
            role=role,
            action=_WATCH,
        )


def _decision(item: Reply) -> str:
    return item.text("EvalDecision")


def _version(reply: Reply) -> str:
    return reply.part("Policy").text("DefaultVersionId")


def _document(reply: Reply) -> Mapping[str, Any]:
    return reply.part("PolicyVersion").part("Document").content


def _account(reply: Reply) -> tuple[str, str]:
    return reply.text("Account"), reply.text("Arn", prefix="arn:").split(":")[1]


def _pools(plan: Plan) -> Iterator[Problem]:
    """Yield the price of the most expensive machines that SageMaker may use instead, of all at the largest size."""
    every = pools(plan.chosen, plan.fallbacks)
    names = tuple(every)[1:]
    costliest = max(every.values(), key=_most_usd_per_hour)
    most = _most_usd_per_hour(costliest)
    if most > _most_usd_per_hour(plan.chosen):
        machines = _most_machines(plan)
        size = "" if machines == 1 else f" for {'up to ' if plan.request.replicas.varies else ''}{machines} machines"
        yield warning(
            "pools_cost_more",
            f"if no {plan.chosen.offer.instance_type.name} is available, SageMaker uses {' or '.join(names)} instead: "
            f"at most {usd(most, estimated=costliest.offer.estimated)} an hour{size} ({costliest.offer.dated})",
            "leave them out with --instance",
            instance_types=names,
            most_usd_per_hour=most,
        )


def _most_usd_per_hour(candidate: Candidate) -> Decimal:
    return candidate.rent_usd_per_hour or Decimal(0)


def _most_machines(plan: Plan) -> int:
    """Return the number of machines at the largest size: each has one replica."""
    return max(plan.chosen.machines, plan.request.replicas.most or 0)


def _cuts(plan: Plan) -> Iterator[Problem]:
    """Yield the warning that autoscaling may cut off answers."""
    found = cut_off(longest_answer_s(plan.chosen), "give one number with --replicas: then only 'scale' changes it")
    if plan.request.replicas.varies and found is not None:
        yield found


def cut_off(answer_s: int, hint: str) -> Problem | None:
    """Return the warning if answers may take longer than a machine gets that SageMaker removes."""
    stop_s = read_hosting(NAME).limits.stop_s
    if answer_s <= stop_s:
        return None
    message = f"a machine that SageMaker removes has {stop_s} s to finish its answers, which may take {answer_s} s"
    return warning("answers_cut", f"{message}: longer ones are cut off", hint, stop_s=stop_s, answer_s=answer_s)


def _weights(plan: Plan, options: SageMakerOptions) -> Iterator[Problem]:
    if options.hub_token_from_env:
        yield warning(
            "token_readable",
            f"whoever may call sagemaker:DescribeModel in this account can read {HUB_TOKEN} in the model",
            "use a token that can read only this model, or copy the weights to S3 and name the folder with --weights",
        )
    bucket = (options.weights or "").removeprefix("s3://").partition("/")[0]
    if options.create_role and bucket and _READABLE not in bucket:
        yield error(
            "weights_unreadable",
            f"a created role may read only buckets with {_READABLE!r} in their names, and not {bucket}",
            "name a role that may read it with --role, or copy the weights to such a bucket",
            bucket=bucket,
            model=plan.request.model.name,
        )


class _Quota(NamedTuple):
    """How many machines of a type an account may have in endpoints of a region."""

    code: str
    kind: str
    limit: int

    def text(self, region: str, needed: int) -> str:
        return f"quota {self.code} ({self.kind}{_ENDING}) in {region}: limit {self.limit}, needed {needed}"

    def command(self, region: str, needed: int) -> str:
        words = ("aws", "service-quotas", "request-service-quota-increase", "--service-code", "sagemaker")
        return shlex.join((*words, "--quota-code", self.code, "--desired-value", str(needed), "--region", region))


def _quotas(api: Api) -> Mapping[str, _Quota]:
    def read(item: Reply) -> _Quota:
        name = item.text("QuotaName")
        kind = name.removesuffix(_ENDING) if name.endswith(_ENDING) else ""
        return _Quota(item.text("QuotaCode"), kind, int(item.number("Value")))

    doing, read_page = "reading SageMaker's quotas", each("Quotas", read)
    listed = api.list("list_service_quotas", doing, read_page, service="service-quotas", ServiceCode="sagemaker")
    return {quota.kind: quota for quota in listed if quota.kind}


def _quota(api: Api, plan: Plan, at_once: Mapping[str, int]) -> Iterator[Problem]:
    chosen = plan.chosen.offer.instance_type.name
    try:
        limits = _quotas(api)
    except DeployError as problem:
        yield _unanswered(problem)
        return
    for kind in pools(plan.chosen, plan.fallbacks):
        quota, needed = limits.get(kind), max(plan.chosen.machines, at_once.get(kind, 0))
        most = max(needed, _most_machines(plan))
        if quota is None:
            yield warning("not_checked", f"the quota '{kind}{_ENDING}' in {api.region} is not listed")
        elif quota.limit < most:
            make = error if kind == chosen and quota.limit < needed else warning
            asked = needed if quota.limit < needed else most
            message, command = quota.text(api.region, asked), quota.command(api.region, most)
            if quota.limit < at_once.get(kind, 0):
                message = f"{message} while both revisions run"
            yield make("quota_exceeded", message, command, instance_type=kind, limit=quota.limit, needed=asked)
        else:
            yield ok("quota", quota.text(api.region, needed))


def _usable(api: Api) -> Problem:
    """Return the types that an account may use in endpoints: most quotas are 0 at first."""
    try:
        usable = sorted(quota.kind for quota in _quotas(api).values() if quota.limit > 0)
    except DeployError as problem:
        return _unanswered(problem)
    if not usable:
        hint = "request one in the console of Service Quotas (Amazon SageMaker, 'ml.TYPE for endpoint usage')"
        return warning("quota_exceeded", f"no quota for endpoint usage in {api.region} is above 0", hint)
    return ok("quota", f"{len(usable)} types may be used in endpoints in {api.region}", types=usable)


def _price(api: Api, plan: Plan) -> Problem:
    """Compare the plan's price with AWS's own list."""
    chosen = plan.chosen
    kind, planned = chosen.offer.instance_type.name, chosen.offer.usd_per_hour or Decimal(0)
    about = "about " if chosen.offer.estimated else ""
    try:
        listed = listed_usd_per_hour(api, kind)
    except DeployError as problem:
        if not chosen.offer.estimated:
            return ok("price", f"{kind} costs ${planned} an hour, as listed on {chosen.offer.price_date}")
        why = f"AWS's price list was not read: {problem.message}"
        derived = f"about ${planned} an hour ({chosen.offer.dated}) is derived from EC2's price, and {why}"
        return warning("price_estimated", derived)
    total = _most_usd_per_hour(chosen) + (listed - planned) * _most_machines(plan)
    budget = plan.request.budget_usd_per_hour
    message = f"AWS's price list has ${listed:f} an hour for {kind} in {api.region}; the plan has {about}${planned}"
    data: dict[str, Any] = {"listed_usd_per_hour": listed, "planned_usd_per_hour": planned, "total_usd_per_hour": total}
    if budget is not None and total > budget:
        return error("over_budget", message, f"raise --budget to {total:.4f}, or name another --instance", **data)
    if abs(listed - planned) > planned * _SAME:
        return warning("price_differs", message, f"everything together costs ${total:.4f} an hour", **data)
    return ok("price", message, **data)


def listed_usd_per_hour(api: Api, kind: str) -> Decimal:
    """Return AWS's own price of a machine of an endpoint in the region of `api`. Raises DeployError `price_unknown`."""
    terms = {"regionCode": api.region, "instanceName": kind, "component": "Hosting"}

    def read(page: Reply) -> tuple[Decimal, ...]:
        return tuple(_on_demand(text) for text in page.texts("PriceList"))

    found = replace(api, region=_PRICE_LIST_REGION).list(
        "get_products",
        f"reading the price of {kind}",
        read,
        service="pricing",
        ServiceCode="AmazonSageMaker",
        Filters=[{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in terms.items()],
    )
    if not found:
        raise DeployError("price_unknown", f"AWS's price list has no {kind} for endpoints in {api.region}")
    return max(found)


def _on_demand(text: str) -> Decimal:
    """Return the hourly price of a product of the price list, which is JSON in JSON. Raises ReplyError."""
    try:
        product = bounded_json.parse_object(text)
        (term,) = product["terms"]["OnDemand"].values()
        (dimension,) = term["priceDimensions"].values()
        found = Decimal(dimension["pricePerUnit"]["USD"])
    except (ValueError, KeyError, TypeError, AttributeError, InvalidOperation) as problem:
        raise ReplyError(f"a product of the price list is unreadable: {problem}") from None
    if not found.is_finite() or not 0 < found < _TOO_MUCH:
        raise ReplyError("a price is not above 0, or is too high for a machine")
    return found


def _unanswered(problem: DeployError) -> Problem:
    """Return the finding for an unanswered question: bad credentials are an error, anything else is unknown."""
    if problem.code in _BROKEN:
        return problem.problem
    remedy = POLICY if isinstance(problem, PermissionDeniedError) else problem.hint
    return warning("not_checked", problem.message, remedy)

"""What is found in an account before anything is created."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from builders.requests import shared_catalog
from fakes.computer import FakeClock
from fakes.hosting_api import FakeHosting, refusal

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.targets.aws.api import Api
from tgi_deploy.targets.aws.retry import Retrier
from tgi_deploy.targets.sagemaker.checks import examined, findings
from tgi_deploy.targets.sagemaker.options import SageMakerOptions
from tgi_deploy.targets.sagemaker.requests import pools
from tgi_deploy.text import usd
from tgi_deploy.values.plan import Plan

OPTIONS = SageMakerOptions(create_role=True)


@dataclass
class Account(FakeHosting):
    """`quotas` are machines in endpoints by type, `prices` by type, `texts` products as they are."""

    quotas: dict[str, float] | None = field(default_factory=dict)
    prices: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    policies: tuple[str, ...] = ("tgi-deploy-sagemaker-boundary",)
    bounds: dict[str, Any] = field(default_factory=read_actions("sagemaker").boundary.document)

    @property
    def api(self) -> Api:
        return Api(region="us-east-1", sessions=self, retrier=Retrier(FakeClock()))

    def _get_caller_identity(self) -> dict[str, Any]:
        return {"Account": "123456789012", "Arn": "arn:aws:iam::123456789012:user/me"}

    def _get_policy(self, PolicyArn: str) -> dict[str, Any]:  # noqa: N803 -- the API's
        if PolicyArn.rpartition("/")[2] not in self.policies:
            raise refusal("NoSuchEntity", f"Policy {PolicyArn} was not found.")
        return {"Policy": {"Arn": PolicyArn, "DefaultVersionId": "v3"}}

    def _get_policy_version(self, PolicyArn: str, VersionId: str) -> dict[str, Any]:  # noqa: N803 -- the API's
        assert VersionId == "v3"
        return {"PolicyVersion": {"Document": self.bounds}}

    def _list_service_quotas(self, ServiceCode: str) -> dict[str, Any]:  # noqa: N803 -- the API's
        assert ServiceCode == "sagemaker"
        endings = (" for endpoint usage", " for training job usage")
        return {
            "Quotas": [
                {"QuotaCode": "L-1", "QuotaName": kind + ending, "Value": limit if ending == endings[0] else 99.0}
                for kind, limit in (self.quotas or {}).items()
                for ending in endings
            ]
        }

    def _get_products(self, ServiceCode: str, Filters: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
        assert ServiceCode == "AmazonSageMaker"
        asked = {item["Field"]: item["Value"] for item in Filters}
        assert asked["component"] == "Hosting"
        price = self.prices.get(asked["instanceName"])
        return {"PriceList": [*([product(price)] if price else []), *self.texts]}


def product(usd: object) -> str:
    dimension = {"pricePerUnit": {"USD": usd}, "unit": "Hrs"}
    return json.dumps({"terms": {"OnDemand": {"X.Y": {"priceDimensions": {"X.Y.Z": dimension}}}}})


@cache
def made(region: str = "us-east-1", instance: str | None = "ml.g5.xlarge", **texts: str) -> Plan:
    asked = OptionTexts(model="llama3-13b", instance=instance, regions=(region,), **texts)
    found = plan(asked, shared_catalog("sagemaker"), {})
    assert isinstance(found, Plan)
    return found


def codes(account: Account, chosen: Plan | None = None, options: SageMakerOptions = OPTIONS) -> dict[str, str]:
    return {item.code: item.severity for item in findings(account.api, chosen or made(), options)}


def fitting(**changes: Any) -> Account:
    return Account(**({"quotas": {"ml.g5.xlarge": 1.0}, "prices": {"ml.g5.xlarge": "1.4084"}} | changes))


def test_an_account_that_fits():
    assert codes(fitting()) == {"quota": "ok", "price": "ok"}


def test_a_quota_of_nothing_is_an_error_with_the_command_that_raises_it():
    account = fitting(quotas={"ml.g5.xlarge": 0.0})
    (found,) = (item for item in findings(account.api, made(), OPTIONS) if item.severity == "error")
    assert found.code == "quota_exceeded"
    assert "limit 0, needed 1" in found.message
    assert found.hint is not None
    assert found.hint.startswith("aws service-quotas request-service-quota-increase --service-code sagemaker")


def test_replicas_count_toward_the_quota():
    assert codes(fitting(), made(replicas="2"))["quota_exceeded"] == "error"


def test_a_quota_below_the_largest_size_of_a_range_is_a_warning_with_the_command_for_that_size():
    chosen = made(budget="15", replicas="1..4")
    (found,) = (item for item in findings(fitting().api, chosen, OPTIONS) if item.code == "quota_exceeded")
    assert (found.severity, found.data["needed"]) == ("warning", 4)
    assert found.hint is not None
    assert "--desired-value 4" in found.hint


def test_an_unknown_quota_is_not_0():
    assert codes(fitting(quotas={}))["not_checked"] == "warning"
    denied = fitting(refusals={"list_service_quotas": refusal("AccessDeniedException", "not allowed")})
    assert codes(denied)["not_checked"] == "warning"


def test_a_fallback_without_quota_stops_nothing():
    chosen = made(instance=None, budget="5")
    assert codes(fitting(quotas={"ml.g5.xlarge": 1.0, "ml.g5.2xlarge": 0.0}), chosen)["quota_exceeded"] == "warning"
    assert codes(fitting(), chosen)["pools_cost_more"] == "warning"


@pytest.mark.parametrize(
    ("replicas", "factor", "words"),
    [("1", 1, " an hour"), ("3", 3, " an hour for 3 machines"), ("1..4", 4, " an hour for up to 4 machines")],
)
def test_the_price_of_other_pools_is_that_of_the_largest_size(replicas: str, factor: int, words: str):
    chosen = made(instance=None, budget="15", replicas=replicas)
    (found,) = (item for item in findings(fitting().api, chosen, OPTIONS) if item.code == "pools_cost_more")
    each = max(item.offer.usd_per_hour or 0 for item in pools(chosen.chosen, chosen.fallbacks).values())
    assert found.data["most_usd_per_hour"] == each * factor
    assert found.message.endswith(f"at most {usd(each * factor)}{words} (listed 2026-09-27)")


def test_a_higher_price_counts_for_the_largest_size_of_a_range():
    listed = fitting(prices={"ml.g5.xlarge": "1.51"})
    assert codes(listed, made(budget="5.9", replicas="1..4"))["over_budget"] == "error"
    assert "over_budget" not in codes(listed, made(budget="6.1", replicas="1..4"))


@pytest.mark.parametrize(("listed", "budget", "code"), [("1.41", "5", "price"), ("1.61", "5", "price_differs"),
                                                        ("1.61", "1.5", "over_budget")])  # fmt: skip
def test_the_price_is_compared_with_awss_list(listed: str, budget: str, code: str):
    assert code in codes(fitting(prices={"ml.g5.xlarge": listed}), made(budget=budget))


def test_a_derived_price_is_never_confirmed_by_silence():
    assert codes(fitting(prices={}), made(region="eu-west-1"))["price_estimated"] == "warning"
    assert codes(fitting(prices={}))["price"] == "ok"


@pytest.mark.parametrize("text", ["", "[]", "{}", product("free"), product("0"), product(-1), product("NaN"), "{" * 99,
                                  product("9E999999")])  # fmt: skip
def test_a_product_that_is_no_price_is_unknown(text: str):
    assert codes(fitting(prices={}, texts=[text]), made(region="eu-west-1"))["price_estimated"] == "warning"


def test_a_created_role_can_read_only_some_buckets():
    options = SageMakerOptions(create_role=True, weights="s3://models/llama/")
    assert codes(fitting(), options=options)["weights_unreadable"] == "error"
    options = SageMakerOptions(create_role=True, weights="s3://my-sagemaker-models/llama/")
    assert "weights_unreadable" not in codes(fitting(), options=options)


def test_a_created_role_needs_the_boundary():
    (found,) = (item for item in findings(fitting(policies=()).api, made(), OPTIONS) if item.severity == "error")
    assert found.code == "boundary_missing"
    assert found.hint is not None
    assert "--policy-name tgi-deploy-sagemaker-boundary" in found.hint
    role = SageMakerOptions(role="arn:aws:iam::123456789012:role/hosting")
    assert "boundary_missing" not in codes(fitting(policies=()), options=role)


def test_an_older_boundary_is_a_warning_with_the_command_that_renews_it():
    assert "boundary_differs" not in codes(fitting(), options=OPTIONS)
    older = {"Version": "2012-10-17", "Statement": []}
    (found,) = (
        item for item in findings(fitting(bounds=older).api, made(), OPTIONS) if item.code == "boundary_differs"
    )
    assert found.severity == "warning"
    assert "create-policy-version --set-as-default" in (found.hint or "")


def test_a_token_in_the_model_is_a_warning():
    assert (
        codes(fitting(), options=SageMakerOptions(create_role=True, hub_token_from_env=True))["token_readable"]
        == "warning"
    )


def test_the_doctor_lists_what_the_account_may_use_at_all():
    found = {
        item.code: item
        for item in examined(fitting(quotas={"ml.g5.xlarge": 1.0, "ml.g6.xlarge": 0.0}).api, None, OPTIONS)
    }
    assert found["quota"].data["types"] == ["ml.g5.xlarge"]
    none = {item.code: item.severity for item in examined(fitting(quotas={"ml.g5.xlarge": 0.0}).api, None, OPTIONS)}
    assert none == {"identity": "ok", "quota_exceeded": "warning"}


def test_without_an_identity_nothing_else_is_asked():
    account = fitting(refusals={"get_caller_identity": refusal("ExpiredToken", "the token has expired")})
    (found,) = examined(account.api, made(), OPTIONS)
    assert (found.code, found.severity) == ("bad_credentials", "error")


@pytest.mark.parametrize(
    ("refusals", "found"),
    [
        ({}, {"role_insufficient": "warning"}),
        ({"simulate_principal_policy": refusal("AccessDenied", "not allowed")}, {"not_checked": "warning"}),
        ({"simulate_principal_policy": refusal("NoSuchEntity", "no role")}, {"role_unusable": "error"}),
    ],
)
def test_the_doctor_names_what_a_given_role_lacks_for_updates(refusals: dict[str, Exception], found: dict[str, str]):
    options = SageMakerOptions(role="arn:aws:iam::123456789012:role/team/hosting")
    account = fitting(refusals=refusals, decision="implicitDeny")
    seen = {item.code: item.severity for item in examined(account.api, made(), options)}
    assert seen == {"identity": "ok", "quota": "ok", "price": "ok", **found}

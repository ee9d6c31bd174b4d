"""The methods that plan, explain and describe. They start nothing and call no cloud."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Unpack

from tgi_deploy import wiring
from tgi_deploy.api.base import ClientBase, names_replacements
from tgi_deploy.wiring import target_names

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from tgi_deploy.api.base import UpRequest
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.planning.why_not import WhyNot
    from tgi_deploy.operations.results.catalogs import EntryData
    from tgi_deploy.operations.results.catalogs import ListData as ListedData
    from tgi_deploy.targets.protocol import Artifact, Target
    from tgi_deploy.values.base import Result
    from tgi_deploy.values.catalog_results import (
        DeploymentTextData,
        HardwareEntry,
        ProfileData,
        ProfilesData,
        ProfileTextData,
    )
    from tgi_deploy.values.model import Profile
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.plan_document import PlanData
    from tgi_deploy.values.plan_request import PlanRequest
    from tgi_deploy.values.plan_results import (
        CasesData,
        Comparison,
        DiffData,
        PredictionData,
        RenderData,
        SweepData,
        WhyNotData,
    )

    Percent = Decimal | float | str | None


class Planning(ClientBase):
    """Methods for plans and for the catalog."""

    @names_replacements
    def plan(
        self,
        model: str,
        *,
        explain: bool = False,
        lock: Path | None = None,
        report: Path | None = None,
        **request: Unpack[UpRequest],
    ) -> Result[PlanData, Plan]:
        """Return the plan for a model.

        `request` has the options of a plan: `budget=5`. `lock` and `report` are files to write: the plan's lock, and a
        page about the plan (for .svg and .png, only its chart). Raises NoPlanError, which lists the nearest misses.
        """
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.results.planning import plan_result

        files = None
        if lock or report:
            from tgi_deploy.operations.planning.plan_files import PlanFiles

            files = PlanFiles(lock=lock, report=report, targets=wiring.targets())
            files.check()
        target, given = self._chosen(request)
        texts = texts_of(model, given)
        return plan_result(target, texts, self._catalog(), os.environ, explain=explain, into=files)

    def own(
        self, model: str, file: Path, *, explain: bool = False, **request: Unpack[PlanRequest]
    ) -> Result[PlanData, Plan]:
        """Return the plan for the hardware in a file, its cost, and the rentals that it beats."""
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.results.about_plans import owned_result

        return owned_result(file, texts_of(model, request), self._catalog(), os.environ, explain=explain)

    def locked(self, file: Path) -> Result[PlanData, None]:
        """Return the plan in a lock, with a warning if today's plan differs. Does not contact the hub."""
        from tgi_deploy.operations.results.about_plans import locked_result

        return locked_result(file, lambda kind: wiring.catalog_with(kind, self._profiles_dir))

    def why_not(self, model: str, kind: str, **request: Unpack[UpRequest]) -> Result[WhyNotData, WhyNot]:
        """Explain an instance type or an accelerator for a request, with the arithmetic."""
        from tgi_deploy.operations.results.about_plans import why_not_result

        texts, catalog = self._supplied(model, request)
        return why_not_result(texts, kind, catalog, os.environ)

    def sweep(self, model: str, values: str, **request: Unpack[UpRequest]) -> Result[SweepData, SweepData]:
        """Plan for many values of one option: `concurrency=1,2,4`, `context=2048..16384*2`, `budget=1..10+1`."""
        from tgi_deploy.operations.results.about_plans import sweep_result

        texts, catalog = self._supplied(model, request)
        return sweep_result(texts, values, catalog, os.environ)

    def _chosen(self, request: UpRequest) -> tuple[Target, dict[str, object]]:
        """Return the target at the location that its options choose, and the other options."""
        from tgi_deploy.targets.protocol import located

        own, _, rest = self._own_options(request)
        return located(self.target, own), rest

    def _supplied(self, model: str, request: UpRequest) -> tuple[OptionTexts, Catalog]:
        """Return a request with the target's additions, and the catalog with their prices."""
        from tgi_deploy.operations.launching.target_options import supplied
        from tgi_deploy.operations.planning.option_texts import texts_of

        target, given = self._chosen(request)
        texts, found = supplied(target, texts_of(model, given), self._catalog(), os.environ)
        return texts, self._catalog().with_added(found.added)

    def render(
        self, model: str, form: str, *, name: str | None = None, **request: Unpack[UpRequest]
    ) -> Result[RenderData, Artifact]:
        """Return one artifact of a plan as text; `forms` has the possible forms. Raises NoPlanError.

        Of the targets' options, it takes those that change the artifact (`target_options("render")`).
        """
        from tgi_deploy.operations.launching.target_options import own_options, reject_unsupported
        from tgi_deploy.operations.planning.artifacts import artifact_result
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.values.base import replaced

        known = {item.name for item in wiring.target_options("render")}
        target = wiring.target_of_form(form)
        given = {name: value for name, value in request.items() if name in known}
        own = own_options(target, wiring.targets(), given, command="render")
        reject_unsupported(target, request, os.environ)
        return artifact_result(
            form,
            texts_of(model, {name: value for name, value in request.items() if name not in known}),
            self._catalog(target),
            os.environ,
            write=lambda subject: wiring.render_artifact(form, replaced(subject, options=own), self._templates_dir),
            name=name,
            profiles_dir=self._profiles_dir,
        )

    @names_replacements
    def diff(
        self,
        old: Path,
        new: Path,
        *,
        max_cost_increase: Percent = None,
        max_token_cost_increase: Percent = None,
        min_memory_margin_tokens: int | None = None,
    ) -> Result[DiffData, Comparison]:
        """Compare two plans: locks, or the output of `plan --json`.

        Limits are percentages: `10`, `"10%"`. Exceeded ones are errors of the result, with exit code 3.
        """
        from tgi_deploy.operations.planning.compare_plans import Limits
        from tgi_deploy.operations.results.about_plans import diff_result

        limits = Limits.of(
            max_cost_increase=max_cost_increase,
            max_token_cost_increase=max_token_cost_increase,
            min_memory_margin_tokens=min_memory_margin_tokens,
        )
        return diff_result(old, new, limits)

    def predict(  # noqa: PLR0913 -- one argument per option
        self,
        model: str,
        *,
        accelerator: str,
        num_shard: int = 1,
        interconnect: str | None = None,
        weights: str = "fp16",
        kv: str = "fp16",
        input_tokens: int = 1024,
        output_tokens: int = 256,
        concurrency: int | str = "saturated",
        engine: str | None = None,
        engine_version: str = "",
    ) -> Result[PredictionData, PredictionData]:
        """Return the predicted speed of a given configuration, each figure with an 80% interval."""
        from tgi_deploy.operations.planning.predict import PredictionRequest, concurrency_of
        from tgi_deploy.operations.results.about_plans import prediction_result

        request = PredictionRequest(
            model=model,
            accelerator=accelerator,
            num_shard=num_shard,
            interconnect=interconnect or "",
            weights=weights,
            kv=kv,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            concurrency=concurrency_of(str(concurrency)),
            engine=engine or wiring.engine_named().name,
            engine_version=engine_version,
        )
        return prediction_result(request, self._catalog())

    def predict_cases(self, file: Path) -> Result[CasesData, CasesData]:
        """Return a prediction for each row of a CSV file, in order. Does not contact the hub."""
        from tgi_deploy.operations.results.about_plans import cases_result

        return cases_result(file, wiring.catalog(self._profiles_dir, offline=True))

    def catalog_list(
        self, *names: str, region: str | None = None, engine_version: str | None = None
    ) -> Result[ListedData, ListedData]:
        """Return every entry of one kind (accelerators, instances, regions, engines, models), or named hardware."""
        from tgi_deploy.operations.results.catalogs import list_result

        catalog = wiring.open_catalog(self._profiles_dir)
        return list_result(
            names,
            catalog,
            self._hosted(catalog),
            region=region or catalog.default_region(os.environ)[0],
            release=engine_version or catalog.default_release,
        )

    def catalog_show(self, name: str) -> Result[EntryData, HardwareEntry | None]:
        """Return everything known about an accelerator, an instance type, an engine version or a model."""
        from tgi_deploy.operations.results.catalogs import entry_result

        catalog = wiring.open_catalog(self._profiles_dir)
        region = catalog.default_region(os.environ)[0]
        return entry_result(name, catalog, self._hosted(catalog), region=region, release=catalog.default_release)

    def _hosted(self, catalog: Catalog) -> tuple[Catalog, ...]:
        """Return the catalogs of all services that have their own machines."""
        services = (target.facts.service for target in wiring.targets())
        return tuple(catalog.hosted(service) for service in services if service)

    def profile_list(self) -> Result[ProfilesData, ProfilesData]:
        """Return the profiles: yours first, then the packaged ones."""
        from tgi_deploy.operations.results.catalogs import profiles_result

        return profiles_result(wiring.open_catalog(self._profiles_dir))

    def profile_show(self, name: str) -> Result[ProfileData, Profile]:
        """Return one profile: the model's shape, its notes, and its defaults."""
        from tgi_deploy.operations.results.catalogs import profile_result

        return profile_result(wiring.open_catalog(self._profiles_dir).resolve(name))

    def profile_validate(self, file: Path) -> Result[ProfileData, Profile]:
        """Return the profile in a file. Raises InputError, which names the invalid key."""
        from tgi_deploy.operations.planning.profile_file import read_profile
        from tgi_deploy.operations.results.catalogs import profile_result

        return profile_result(read_profile(file, wiring.open_catalog))

    def profile_new(self, model: str) -> Result[ProfileTextData, Profile]:
        """Return the first draft of a profile, from a hub id or a folder with a config.json."""
        from tgi_deploy.operations.results.catalogs import draft_result

        return draft_result(self._catalog().resolve(model))

    def profile_init(
        self, model: str, *, name: str | None = None, **options: Unpack[UpRequest]
    ) -> Result[DeploymentTextData, str]:
        """Return the text of a file for `up -f`, for a model with these options."""
        from tgi_deploy.operations.planning.option_texts import texts_of
        from tgi_deploy.operations.results.catalogs import deployment_result

        _, own, request = self._own_options(options)
        target = None if self.target.name == target_names()[0] else self.target.name
        return deployment_result(texts_of(model, request), self._catalog(), name=name, target=target, own=own)

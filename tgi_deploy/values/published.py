"""The types of `data` by command. The JSON Schemas in docs/schemas.json are generated from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.values import catalog_results as catalogs
from tgi_deploy.values import change_results as changes
from tgi_deploy.values import results
from tgi_deploy.values.plan_document import PlanData
from tgi_deploy.values.plan_results import CasesData, DiffData, PredictionData, RenderData, SweepData, WhyNotData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.base import Value

DATA: Final[Mapping[str, tuple[type[Value], ...]]] = {
    "ask": (results.AnswerData,),
    "catalog list": (catalogs.RegionsData, catalogs.EnginesData, catalogs.ModelsData, catalogs.HardwareData),
    "catalog show": (catalogs.AcceleratorData, catalogs.InstanceData, catalogs.EngineData, catalogs.ModelData),
    "costs": (results.CostsData,),
    "diagnose": (results.DiagnosisData,),
    "diff": (DiffData,),
    "doctor": (results.DoctorData, results.PolicyData),
    "down": (changes.DownData,),
    "exec": (results.ExecData,),
    "explain": (results.ExplanationData, results.CodesData),
    "extend": (results.ExtensionData,),
    "gc": (changes.GcData,),
    "list": (results.ListData,),
    "logs": (results.LogData,),
    "open": (results.AccessData,),
    "plan": (PlanData, SweepData, WhyNotData),
    "predict": (PredictionData, CasesData),
    "profile init": (catalogs.DeploymentTextData,),
    "profile list": (catalogs.ProfilesData,),
    "profile new": (catalogs.ProfileTextData,),
    "profile show": (catalogs.ProfileData,),
    "profile validate": (catalogs.ProfileData,),
    "rehearse": (changes.RehearsalData,),
    "render": (RenderData,),
    "restart": (changes.SwitchData,),
    "rollback": (changes.UpData,),
    "runbook": (results.RunbookData,),
    "sandbox start": (results.SandboxData,),
    "sandbox status": (results.SandboxData,),
    "sandbox stop": (results.SandboxStopData,),
    "scale": (changes.ScaleData,),
    "smoke": (changes.SmokeData, changes.ProofsData),
    "start": (changes.SwitchData,),
    "status": (results.NamedStatusData, results.StatusData),
    "stop": (changes.SwitchData,),
    "up": (changes.UpData, changes.UpFileData),
}

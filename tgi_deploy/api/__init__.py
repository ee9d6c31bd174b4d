"""The Python API: one method per use case, with the command line's options as arguments (docs/api.md).

It prints nothing, prompts for nothing, reads no arguments and sets no signal handlers. Progress goes to `progress`,
confirmations go to the caller's functions, and failures are a `DeployError` with a code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.api.changing import Changing
from tgi_deploy.errors import DeployError as DeployError
from tgi_deploy.operations.stops import Stops as Stops
from tgi_deploy.values.plan import NoPlanError as NoPlanError
from tgi_deploy.wiring import forms as forms
from tgi_deploy.wiring import logged_engines as logged_engines
from tgi_deploy.wiring import target_for as target_for
from tgi_deploy.wiring import target_names as target_names
from tgi_deploy.wiring import target_of as target_of
from tgi_deploy.wiring import target_options as target_options

if TYPE_CHECKING:
    # The parts of outcomes, for programs that print them.
    from tgi_deploy.api.watching import NameKind as NameKind
    from tgi_deploy.diagnosis.patterns import Page as Page
    from tgi_deploy.diagnosis.reader import Reading as Reading
    from tgi_deploy.operations.deploying.file_run import FileOutcome as FileOutcome
    from tgi_deploy.operations.deploying.in_place import Extension as Extension
    from tgi_deploy.operations.deploying.pausing import SwitchOutcome as SwitchOutcome
    from tgi_deploy.operations.deploying.pausing import SwitchProposal as SwitchProposal
    from tgi_deploy.operations.deploying.proposal import Proposal as Proposal
    from tgi_deploy.operations.deploying.rollout import Update as Update
    from tgi_deploy.operations.deploying.scaling import Resizing as Resizing
    from tgi_deploy.operations.deploying.service import Proof as Proof
    from tgi_deploy.operations.deploying.service import ReadyLevel as ReadyLevel
    from tgi_deploy.operations.deploying.smoke import Case as Case
    from tgi_deploy.operations.deploying.smoke import Proved as Proved
    from tgi_deploy.operations.deploying.smoke import Smoked as Smoked
    from tgi_deploy.operations.deploying.up import Decision as Decision
    from tgi_deploy.operations.deploying.up import UpOutcome as UpOutcome
    from tgi_deploy.operations.planning.why_not import WhyNot as WhyNot
    from tgi_deploy.operations.removing.down import DownOutcome as DownOutcome
    from tgi_deploy.operations.removing.down import Removal as Removal
    from tgi_deploy.operations.removing.gc import GcOutcome as GcOutcome
    from tgi_deploy.operations.removing.gc import Group as Group
    from tgi_deploy.operations.removing.receipt import KeptResource as KeptResource
    from tgi_deploy.operations.removing.receipt import Receipt as Receipt
    from tgi_deploy.operations.watching.asking import Answer as Answer
    from tgi_deploy.operations.watching.diagnose import DeploymentDiagnosis as DeploymentDiagnosis
    from tgi_deploy.operations.watching.explain import Explanation as Explanation
    from tgi_deploy.operations.watching.listing import Listing as Listing
    from tgi_deploy.operations.watching.listing import Row as Row
    from tgi_deploy.operations.watching.status import Status as Status
    from tgi_deploy.planner.why_not import Explained as Explained
    from tgi_deploy.planner.why_not import Priced as Priced
    from tgi_deploy.planner.why_not import Variant as Variant
    from tgi_deploy.reconcile.ends import End as End


class Client(Changing):
    """Deployments of one target, or of the sandbox. Clients share nothing, so create one per thread.

    Deployments without a record are searched for in `target` and `region`, as with `--target` and `--region`; a region
    may be 'all'. `command` identifies this client in locks. `owner` is the owner of new deployments, by default the
    current user.
    `progress` receives each event; `str(event)` is one line.
    """

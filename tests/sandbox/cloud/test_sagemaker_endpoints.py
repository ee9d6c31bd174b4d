"""An endpoint's life: its states take time, its instances are processes."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError
from builders.hosting import Hosted, image, trust

TWO_POOLS = [{"InstanceType": "ml.g6e.xlarge", "Priority": 2}, {"InstanceType": "ml.g6.xlarge", "Priority": 1}]
ROLLING = {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "WaitIntervalInSeconds": 60}


@pytest.fixture
def hosted(cloud):
    return Hosted.of(cloud)


def refused(call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Message"]


def test_an_endpoint_is_created_serves_writes_its_log_and_is_deleted(hosted):
    seen: set[str] = set()
    hosted.config("first", hosted.model("first"))
    arn = hosted.create()
    assert refused(hosted.api.delete_endpoint, EndpointName="chat") == f'Cannot update in-progress endpoint "{arn}".'
    found = hosted.settled(seen=seen)
    assert seen == {"Creating", "InService"}
    (variant,) = found["ProductionVariants"]
    assert variant["DeployedImages"][0]["SpecifiedImage"] == image()
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (1, 1)
    assert hosted.ask({"inputs": "Hello", "parameters": {"max_new_tokens": 3}})[0]["generated_text"]
    (stream,) = {event["logStreamName"] for event in hosted.log()}
    assert stream.startswith("main/i-")
    assert any("Connected" in event["message"] for event in hosted.log())
    hosted.api.delete_endpoint(EndpointName="chat")
    assert hosted.described()["EndpointStatus"] == "Deleting"
    hosted.wait(lambda: not hosted.api.list_endpoints()["Endpoints"])
    assert hosted.log()  # the log group stays
    hosted.create()  # and the name is free


def test_gated_weights_from_s3_need_no_token(hosted):
    container = {
        "Image": image(), "Environment": {"HF_MODEL_ID": "/opt/ml/model", "SM_NUM_GPUS": "1"},
        "ModelDataSource": {
            "S3DataSource": {"S3Uri": "s3://bucket/meta-llama/Llama-3.2-1B-Instruct/", "S3DataType": "S3Prefix",
                             "CompressionType": "None"}
        },
    }  # fmt: skip
    hosted.api.create_model(ModelName="gated", ExecutionRoleArn=hosted.role, PrimaryContainer=container)
    hosted.config("first", "gated")
    hosted.create()
    assert hosted.settled()["EndpointStatus"] == "InService"


def test_there_is_no_price_list(cloud):
    words = refused(cloud.client("pricing").get_products, ServiceCode="AmazonSageMaker")
    assert words == "the sandbox has no price list"


def test_weights_that_do_not_fit_fail_the_health_check_and_leave_the_cause_in_the_log(hosted):
    hosted.config("first", hosted.model("first", "Qwen/Qwen2.5-14B-Instruct"))
    hosted.create()
    found = hosted.settled()
    assert found["EndpointStatus"] == "Failed"
    assert found["FailureReason"] == (
        "The primary container for production variant main did not pass the ping health check. "
        "Please check CloudWatch logs for this endpoint."
    )
    assert any("torch.OutOfMemoryError: CUDA out of memory" in event["message"] for event in hosted.log())
    assert "DeleteEndpoint" in refused(hosted.api.update_endpoint, EndpointName="chat", EndpointConfigName="first")
    with pytest.raises(ClientError, match="Endpoint chat of account 123456789012 not found"):
        hosted.ask({"inputs": "Hello"})
    hosted.api.delete_endpoint(EndpointName="chat")
    hosted.wait(lambda: not hosted.api.list_endpoints()["Endpoints"])


def test_without_capacity_the_next_pool_is_used(hosted):
    hosted.cloud.fault(name="insufficient-after-accept", when={"InstanceType": "ml.g6.xlarge"}, times=9)
    found = hosted.serve(InstancePools=TWO_POOLS)
    assert found["EndpointStatus"] == "InService"
    assert {one["InstanceType"]: one["CurrentInstanceCount"] for one in hosted.variant()["InstancePools"]} == {
        "ml.g6.xlarge": 0, "ml.g6e.xlarge": 1,
    }  # fmt: skip


def test_without_any_capacity_creation_fails(hosted):
    hosted.cloud.fault(name="insufficient-after-accept", times=99)
    found = hosted.serve()
    assert found["EndpointStatus"] == "Failed"
    assert "due to InsufficientInstanceCapacity error" in found["FailureReason"]


def test_an_update_replaces_all_instances_while_the_endpoint_answers(hosted):
    hosted.serve()
    hosted.config("second", hosted.model("second", "Qwen/Qwen2.5-0.5B-Instruct"))
    hosted.cloud.fault(name="slow-boot", boot_s=2.0)
    hosted.api.update_endpoint(EndpointName="chat", EndpointConfigName="second")
    assert hosted.described()["PendingDeploymentSummary"]["EndpointConfigName"] == "second"
    seen, models = {"Updating"}, set()
    while (found := hosted.described())["EndpointStatus"] in {"Updating", "RollingBack"}:
        seen.add(found["EndpointStatus"])
        models.add(hosted.ask({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})["model"])
    assert (seen, found["EndpointStatus"], found["EndpointConfigName"]) == ({"Updating"}, "InService", "second")
    models.add(hosted.ask({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})["model"])
    assert models == {"HuggingFaceTB/SmolLM2-135M-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"}


def test_a_rolling_update_keeps_its_count_and_a_failing_one_is_rolled_back(hosted):
    hosted.serve(2)
    second = hosted.config("second", hosted.model("second"), 2)
    policy = {"RollingUpdatePolicy": {**ROLLING, "MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 2}}}
    asked = {"EndpointName": "chat", "EndpointConfigName": second}
    assert "between 5% and 50%" in refused(hosted.api.update_endpoint, **asked, DeploymentConfig=policy)
    policy = {"RollingUpdatePolicy": ROLLING}
    hosted.api.update_endpoint(**asked, DeploymentConfig=policy)
    least = 2
    while (found := hosted.described())["EndpointStatus"] == "Updating":
        least = min(least, found["ProductionVariants"][0]["CurrentInstanceCount"])
    assert (found["EndpointStatus"], found["EndpointConfigName"], least) == ("InService", "second", 2)
    assert found["LastDeploymentConfig"] == policy
    seen: set[str] = set()
    third = hosted.config("third", hosted.model("third", "Qwen/Qwen2.5-14B-Instruct"), 2)
    hosted.api.update_endpoint(EndpointName="chat", EndpointConfigName=third, DeploymentConfig=policy)
    found = hosted.settled(seen=seen)
    assert seen == {"Updating", "RollingBack", "InService"}
    assert (found["EndpointConfigName"], hosted.variant()["CurrentInstanceCount"]) == ("second", 2)
    assert "ping health check" in found["FailureReason"]


def test_a_rollback_without_capacity_leaves_a_mixed_fleet(hosted):
    hosted.serve(2)
    second = hosted.config("second", hosted.model("second"), 2, InstanceType="ml.g6e.xlarge")
    policy = {"RollingUpdatePolicy": {**ROLLING, "WaitIntervalInSeconds": 3600}}
    hosted.api.update_endpoint(EndpointName="chat", EndpointConfigName=second, DeploymentConfig=policy)
    hosted.wait(lambda: hosted.streams() >= 3)  # the first new instance runs
    hosted.cloud.fault(name="insufficient-after-accept", times=999)
    found = hosted.settled()
    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("UpdateRollbackFailed", "first")
    assert hosted.ask({"inputs": "Hello", "parameters": {"max_new_tokens": 1}})


def test_an_alarm_rolls_back_while_the_old_fleet_waits(hosted):
    hosted.serve()
    alarms = hosted.cloud.client("cloudwatch")
    alarms.put_metric_alarm(
        AlarmName="errors", Namespace="AWS/SageMaker", MetricName="Invocation5XXErrors", Statistic="Sum", Period=60,
        EvaluationPeriods=1, Threshold=1, ComparisonOperator="GreaterThanThreshold",
    )  # fmt: skip
    traffic = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 3600}
    policy = {
        "BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": traffic, "TerminationWaitInSeconds": 3600},
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]},
    }
    second = hosted.config("second", hosted.model("second"))
    hosted.api.update_endpoint(EndpointName="chat", EndpointConfigName=second, DeploymentConfig=policy)
    hosted.wait(lambda: hosted.streams() >= 2)
    alarms.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a test")
    found = hosted.settled()
    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "first")
    assert "errors" in found["FailureReason"]


def test_an_update_needs_the_configuration_that_is_in_use(hosted):
    hosted.serve()
    hosted.config("second", "first")
    hosted.api.delete_endpoint_config(EndpointConfigName="first")
    message = refused(hosted.api.update_endpoint, EndpointName="chat", EndpointConfigName="second")
    assert message.startswith('Could not find endpoint configuration "arn:aws:sagemaker:us-east-1')
    assert hosted.ask({"inputs": "Hello", "parameters": {"max_new_tokens": 1}})


def test_capacity_changes_over_time_and_a_failed_change_is_rolled_back(hosted):
    hosted.serve()

    def scale(count):
        wanted = [{"VariantName": "main", "DesiredInstanceCount": count}]
        hosted.api.update_endpoint_weights_and_capacities(EndpointName="chat", DesiredWeightsAndCapacities=wanted)

    scale(2)
    assert (hosted.variant()["CurrentInstanceCount"], hosted.variant()["DesiredInstanceCount"]) == (1, 2)
    assert hosted.settled()["ProductionVariants"][0]["CurrentInstanceCount"] == 2
    scale(1)
    assert hosted.settled()["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    hosted.cloud.fault(name="insufficient-after-accept", times=99)
    seen: set[str] = set()
    scale(3)
    found = hosted.settled(seen=seen)
    assert seen == {"Updating", "RollingBack", "InService"}
    assert "InsufficientInstanceCapacity" in found["FailureReason"]
    assert hosted.variant()["DesiredInstanceCount"] == 1


def test_load_scales_a_variant_out_and_in_again(hosted):
    hosted.serve(ModelName=hosted.model("large", "Qwen/Qwen2.5-7B-Instruct"))
    scaling = hosted.cloud.client("application-autoscaling")
    place = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/chat/variant/main",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    scaling.register_scalable_target(**place, MinCapacity=1, MaxCapacity=2)
    tracked = {
        "TargetValue": 2.0,
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
        },
        "ScaleOutCooldown": 60,
        "ScaleInCooldown": 60,
    }
    scaling.put_scaling_policy(
        **place, PolicyName="load", PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration=tracked,
    )  # fmt: skip
    busy = threading.Event()

    def ask():
        while not busy.is_set():
            hosted.ask({"inputs": "Hello", "parameters": {"max_new_tokens": 200}})

    callers = [threading.Thread(target=ask, daemon=True) for _ in range(6)]
    for caller in callers:
        caller.start()
    hosted.wait(lambda: hosted.variant()["CurrentInstanceCount"] == 2)
    busy.set()
    for caller in callers:
        caller.join()
    hosted.wait(lambda: hosted.variant()["CurrentInstanceCount"] == 1)
    hosted.settled()
    found = scaling.describe_scaling_activities(
        ServiceNamespace="sagemaker", ResourceId=place["ResourceId"], ScalableDimension=place["ScalableDimension"]
    )["ScalingActivities"]
    done = [item["Description"] for item in found]
    assert done == ["Setting desired instance count to 1.", "Setting desired instance count to 2."]
    hosted.api.delete_endpoint(EndpointName="chat")
    hosted.wait(lambda: not hosted.api.list_endpoints()["Endpoints"])
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    assert scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"] == []


def test_a_schedule_deletes_an_endpoint_only_with_a_role_that_may(hosted):
    hosted.serve()
    iam, scheduler = hosted.cloud.client("iam"), hosted.cloud.client("scheduler")
    iam.create_role(RoleName="end", AssumeRolePolicyDocument=trust("scheduler.amazonaws.com"))
    arn = hosted.described()["EndpointArn"]

    def schedule(name):
        scheduler.create_schedule(
            Name=name,
            ScheduleExpression=f"at({datetime.now(UTC) - timedelta(seconds=1):%Y-%m-%dT%H:%M:%S})",
            FlexibleTimeWindow={"Mode": "OFF"},
            ActionAfterCompletion="DELETE",
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
                "RoleArn": "arn:aws:iam::123456789012:role/end",
                "Input": json.dumps({"EndpointName": "chat"}),
            },
        )
        hosted.wait(lambda: not scheduler.list_schedules()["Schedules"])

    schedule("too-early")
    time.sleep(0.2)
    assert hosted.described()["EndpointStatus"] == "InService"
    allowed = {"Effect": "Allow", "Action": "sagemaker:DeleteEndpoint", "Resource": arn}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_role_policy(RoleName="end", PolicyName="end", PolicyDocument=document)
    schedule("in-time")
    hosted.wait(lambda: not hosted.api.list_endpoints()["Endpoints"])

"""Messages as AWS's user guides show them: events of EventBridge, and notifications of Auto Scaling."""

import json

HEALTH_ARN = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED_90353408594353980"


def event(source, kind, detail, id="e-1", time="2025-11-20T10:00:00Z", account="123456789012"):  # noqa: A002  # the field's name
    return {
        "version": "0",
        "id": id,
        "detail-type": kind,
        "source": source,
        "account": account,
        "time": time,
        "region": "eu-west-1",
        "resources": [],
        "detail": detail,
    }


def spot(instance, **more):
    detail = {"instance-id": instance, "instance-action": "terminate"}
    return event("aws.ec2", "EC2 Spot Instance Interruption Warning", detail, **more)


def rebalance(instance, **more):
    return event(
        "aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": instance}, **more
    )


def state(instance, state, **more):
    detail = {"instance-id": instance, "state": state}
    return event("aws.ec2", "EC2 Instance State-change Notification", detail, **more)


def hook(instance, token):
    return {
        "LifecycleActionToken": token,
        "AutoScalingGroupName": "workers",
        "LifecycleHookName": "drain",
        "EC2InstanceId": instance,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    }


def health(
    *instances,
    code="AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
    described="Your instance will be retired",
    **more,
):
    detail = {
        "eventArn": f"arn:aws:health:eu-west-1::event/{HEALTH_ARN}",
        "service": "EC2",
        "eventTypeCode": code,
        "eventTypeCategory": "scheduledChange",
        "statusCode": "upcoming",
        "startTime": "Thu, 20 Nov 2025 10:00:00 GMT",
        "eventDescription": [{"language": "en_US", "latestDescription": described}],
        "affectedEntities": [{"entityValue": instance} for instance in instances],
        **more,
    }
    return event("aws.health", "AWS Health Event", detail)


def wrapped(body):
    """As SNS hands it over."""
    return {"Type": "Notification", "MessageId": "m-1", "Message": json.dumps(body)}

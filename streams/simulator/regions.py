"""Partitions of AWS: what an ARN begins with, and the host of SNS, by region."""

import re

QUEUE_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,80}")


def partition(region: str) -> str:
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def sns_host(region: str) -> str:
    """The URL of SNS without a slash at the end."""
    suffix = "amazonaws.com.cn" if partition(region) == "aws-cn" else "amazonaws.com"
    return f"https://sns.{region}.{suffix}"

"""AWS only: the metadata of an instance, and calls of AWS services.

A module is imported only if a command or a policy needs it; calls of AWS services need the extra ``aws`` (boto3).
"""

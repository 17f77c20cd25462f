"""What only machines of AWS have: the metadata of an instance, and calls of its services.

Nothing here is imported unless it is asked for by a command or a policy; what calls AWS needs the extra ``aws`` (boto3).
"""

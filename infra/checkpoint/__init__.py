"""What a job leaves beside Spark's own checkpoint: offsets, what batches decided, failed batches.

Plain files, no Spark. Imports process, config and storage.
"""

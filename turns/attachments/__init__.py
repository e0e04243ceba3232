"""Attachments: people's files, from the upload to the request to a chat model."""

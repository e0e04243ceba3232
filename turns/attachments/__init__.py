"""Attachments: files of people, from the upload to the request to a chat model."""

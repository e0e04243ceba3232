"""Conversations and their turns: rows, history, chat models, and whoever runs them; knows no browser."""

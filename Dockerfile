# The site, for web processes, runners and single commands alike.
FROM python:3.13-slim-bookworm

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/srv/turnkeeper/.venv/bin:$PATH

# git is a tool of the agents; bubblewrap keeps their commands in where the host lets it.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 turnkeeper

WORKDIR /srv/turnkeeper
COPY requirements/all.txt requirements/all.txt
RUN python -m venv .venv && pip install --no-cache-dir --require-hashes -r requirements/all.txt
COPY manage.py ./
COPY config config
COPY console console
COPY governance governance
COPY turns turns
COPY webchat webchat
COPY static static
COPY templates templates

ENV STATIC_ROOT=/srv/turnkeeper/collected VAR_DIR=/var/lib/turnkeeper ENV_FILE=/dev/null
RUN SECRET_KEY=not-used-at-run-time python manage.py collectstatic --no-input --verbosity 0 \
    && mkdir -p /var/lib/turnkeeper/workspaces \
    && chown -R turnkeeper: /var/lib/turnkeeper
USER turnkeeper
VOLUME /var/lib/turnkeeper
EXPOSE 8000

CMD ["python", "manage.py", "serve", "--host", "0.0.0.0", "--port", "8000"]

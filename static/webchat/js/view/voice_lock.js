/** The lock for the microphone. The visible chat whose button was pressed last holds it. */

const NAME = "webchat-voice";

/** A chat's handle for the lock. Pages in an insecure context have neither locks nor a microphone. */
export class VoiceLock {
  #onLost;
  #request = new AbortController();

  /** @param {() => void} onLost called when another chat has taken the lock */
  constructor(onLost) {
    this.#onLost = onLost;
  }

  /** Take the lock from its holder. */
  take() {
    void this.#ask({ steal: true }, () => undefined);
  }

  /** Wait until the lock is free. @param {() => void} onHeld */
  wait(onHeld) {
    void this.#ask({}, onHeld);
  }

  /** Release the lock, or stop waiting for it. */
  release() {
    this.#request.abort();
  }

  /** @param {LockOptions} options @param {() => void} onHeld */
  async #ask(options, onHeld) {
    this.release();
    this.#request = new AbortController();
    const { signal } = this.#request;
    const hold = () => {
      if (signal.aborted) return undefined;
      onHeld();
      return new Promise((resolve) => signal.addEventListener("abort", resolve));
    };
    try {
      await navigator.locks?.request(NAME, options.steal ? options : { signal }, hold);
    } catch (error) {
      // If the browser forbids storage, it also refuses locks. Each chat then listens without a lock.
      const isStolen = error instanceof DOMException && error.name === "AbortError";
      if (isStolen && !signal.aborted) this.#onLost();
    }
  }
}

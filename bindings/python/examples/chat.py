"""A chat that outlives its process: a second run continues it. The model is a mock."""

import sys

import loopstore


def model(request: dict[str, object]) -> dict[str, object]:
    """Return an answer as `client.chat.completions.create(**request, model=...)` does."""
    count = len(request["messages"])  # type: ignore[arg-type]
    return {"role": "assistant", "content": f"You have said {count // 2 + 1} things."}


path = sys.argv[1] if len(sys.argv) > 1 else "chat.db"
with loopstore.Store.open(path) as store:
    chat = store.session("chat", policy=loopstore.Policy(128_000))
    for prompt in ["Hello!", "What have I said so far?"]:
        chat.append({"role": "user", "content": prompt}, format="openai")
        ready = chat.prepare(format="openai")  # Compacted if needed; it fits, or is an error.
        answer = model(ready.request)
        chat.append(answer, format="openai")
        print(f"> {prompt}\n{answer['content']}")
    print(f"{len(chat.context()['messages'])} messages are kept in {path}.")

"""Tool calls that are known to have started: after a crash, a restart sees which ones may have been made."""

import sys

from loopstore import Store

CALL = {"type": "tool_use", "id": "call-1", "name": "book_flight", "input": {"to": "Bern"}}


def main(path: str) -> None:
    """Answer a prompt whose tool call must not be made twice; a second run makes no call."""
    with Store.open(path) as store:
        chat = store.session("trip")
        if not chat.exists():
            chat.append({"role": "user", "content": "Book a flight to Bern."}, format="anthropic")
            chat.append({"role": "assistant", "content": [CALL]}, format="anthropic")  # A model's answer.
        for call in chat.open_calls():
            begun = chat.start_call(call["id"])  # Durable before the tool runs.
            if begun.state == "started":
                print(f"{call['name']} may have been interrupted: ask for the key {begun.key}.")
            text = f"Booked {call['arguments']['to']}, once for the key {begun.key}."
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
            chat.append({"role": "user", "content": [result]}, format="anthropic")  # Finishes the call.
            print(text)
        print(f"The call is {chat.start_call('call-1').state}, and is not run again.")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tools.db")

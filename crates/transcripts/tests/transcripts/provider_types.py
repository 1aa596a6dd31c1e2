"""Lets the types of the packages `openai` and `anthropic` judge requests and answers.

Each line of stdin is `{"form", "kind", "value"}`. A `request` (what loopstore writes) must be what the
types of a request's parameters describe: nothing that they do not know, nothing of another type. An
`answer` (what a test plays as the provider's) must be what the types of its answers describe. What the
types dump must be the value again. Prints a line of JSON for each value that is refused or changed, and
one with the number of values at the end.
"""

import collections.abc
import json
import sys
import types
import typing

import anthropic.types
import anthropic.types.beta
import openai.types.chat
import openai.types.responses
import pydantic
import typing_extensions
from pydantic import ConfigDict, TypeAdapter

STRICT = ConfigDict(extra="forbid", strict=True)
made = {}

# Reasoning that was recorded without its id: the server takes it so from who lets nothing be stored.
WITHOUT = {("ResponseReasoningItemParam", "id")}

# Reasoning in fields of other servers that speak chat completions, which want back what they gave.
OF_OTHER_SERVERS = {
    "reasoning_content": str,
    "reasoning": str,
    "reasoning_details": list,
    "thinking_blocks": list,
}


def is_union(origin):
    return origin is typing.Union or origin is types.UnionType


def closed(given):
    """Returns the type without what JSON cannot be, and closed to fields that it does not know."""
    if typing_extensions.is_typeddict(given):
        return closed_dict(given)
    origin, args = typing_extensions.get_origin(given), typing_extensions.get_args(given)
    if origin is typing.Annotated:
        return closed(args[0])
    if is_union(origin):
        members = [member for member in map(closed, args) if member is not None]
        return typing.Union[tuple(members)] if members else None
    if origin is typing.Literal:
        return given
    if origin is dict:
        return dict[args[0], closed(args[1])]
    if origin is not None and issubclass(origin, collections.abc.Iterable):
        return list[closed(args[0])]
    if origin is None and isinstance(given, type):
        # Models of answers let through what they do not know; open files are for Python alone.
        if issubclass(given, pydantic.BaseModel) or given.__module__ in ("os", "typing", "io"):
            return None
    if origin is not None:
        return None
    return given


def closed_dict(given):
    if given in made:
        return made[given]
    # A type may hold itself: it is there before its fields are.
    made[given] = typing_extensions.TypedDict(given.__name__, {}, total=False)
    hints = typing_extensions.get_type_hints(given, include_extras=True)
    fields = {}
    for name, hint in hints.items():
        while typing_extensions.get_origin(hint) in (
            typing_extensions.Required,
            typing_extensions.NotRequired,
            typing.Required,
            typing.NotRequired,
        ):
            hint = typing_extensions.get_args(hint)[0]
        hint = closed(hint)
        is_required = name in given.__required_keys__
        if not is_required:
            # Their own answers dump what was not given as null, and take it back.
            hint = typing.Optional[hint]
        elif (given.__name__, name) in WITHOUT:
            is_required = False
        fields[name] = typing_extensions.Required[hint] if is_required else hint
    whole = typing_extensions.TypedDict(given.__name__, fields, total=False)
    whole.__pydantic_config__ = STRICT
    made[given] = whole
    return whole


def request(name, fields):
    whole = typing_extensions.TypedDict(name, fields, total=False)
    whole.__pydantic_config__ = STRICT
    return TypeAdapter(whole)


def adapters():
    chat, responses = openai.types.chat, openai.types.responses
    beta = anthropic.types.beta
    required = typing_extensions.Required
    texts = list[closed(beta.BetaTextBlockParam)]
    return {
        ("openai", "request"): request(
            "Chat", {"messages": required[list[closed(chat.ChatCompletionMessageParam)]]}
        ),
        ("responses", "request"): request(
            "Responses",
            {"instructions": str, "input": required[list[closed(responses.ResponseInputItemParam)]]},
        ),
        ("anthropic", "request"): request(
            "Messages",
            {
                "system": str | texts,
                "messages": required[list[closed(beta.BetaMessageParam)]],
                "context_management": closed(beta.BetaContextManagementConfigParam),
            },
        ),
        ("openai", "answer"): TypeAdapter(chat.ChatCompletion),
        ("responses", "answer"): TypeAdapter(responses.Response),
        ("anthropic", "answer"): TypeAdapter(beta.BetaMessage),
    }


def nearest(errors):
    """Returns the errors of the members of unions whose `type` and `role` fit."""
    tags = ("type", "role")
    others = {tuple(one["loc"][:-1]) for one in errors if one["loc"][-1:] and one["loc"][-1] in tags}
    for one in errors:
        loc = tuple(one["loc"])
        if not any(loc[: len(other)] == other for other in others):
            yield f"{'/'.join(str(part)[:40] for part in loc)}: {one['msg']}"[:400]


def without_fields_of_others(request):
    """Returns a request of chat completions without the reasoning of other servers, where that is well formed."""

    def is_of_others(message, name):
        wanted = OF_OTHER_SERVERS.get(name)
        return wanted and message.get("role") == "assistant" and isinstance(message[name], wanted)

    messages = [
        {name: message[name] for name in message if not is_of_others(message, name)}
        for message in request["messages"]
    ]
    return {**request, "messages": messages}


def judged(adapter, value):
    """Returns why a value is refused or changed, or None."""
    try:
        read = adapter.validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        return "; ".join(list(nearest(found))[:8]) or str(error)[:2000]
    dumped = json.loads(adapter.dump_json(read, exclude_unset=True, by_alias=True))
    return None if dumped == value else f"dumped as {json.dumps(dumped)[:2000]}"


def main():
    known, count = adapters(), 0
    for line in sys.stdin:
        given = json.loads(line)
        value = given["value"]
        if (given["form"], given["kind"]) == ("openai", "request"):
            value = without_fields_of_others(value)
        reason = judged(known[given["form"], given["kind"]], value)
        if reason:
            print(json.dumps({"name": given["name"], "form": given["form"], "refused": reason}))
        count += 1
    print(json.dumps({"judged": count}))


main()

"""Appends 1,000 messages through `loopstore append`, which is killed again and again."""
import json, subprocess, sys

COMMAND = [sys.argv[1], "--db", sys.argv[2], "append", "python", "--format", "openai"]

def start():
    pipe = subprocess.PIPE
    return subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, text=True)

def append(program, key, message, kills):
    while True:
        try:
            line = json.dumps({"key": key, "messages": [message]})
            print(line, file=program.stdin, flush=True)
            if kills:
                program.kill()
            if receipt := program.stdout.readline():
                return program, json.loads(receipt)
        except BrokenPipeError:
            pass
        program, kills = start(), False

program = start()
for number in range(1000):
    role = ["user", "assistant"][number % 2]
    message = {"role": role, "content": f"message {number}"}
    program, receipt = append(program, f"key {number}", message, number % 50 == 7)
    assert receipt["session_id"] == "python", receipt

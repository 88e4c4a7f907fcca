"""Run by another Python, in which `senko` is installed: diarize WAV files, print JSON.

Arguments: WAV files (16 kHz, mono, 16 bit). Prints {path: {"turns": [[start, end, speaker]], "cpu_s": s}}.
"""

import contextlib
import json
import sys
import time


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        import senko  # type: ignore[import-not-found]

        diarizer = senko.Diarizer(device="cpu", warmup=False, quiet=True)
        found = {}
        for path in sys.argv[1:]:
            before = time.process_time()
            result = diarizer.diarize(path, generate_colors=False) or {"merged_segments": []}
            turns = [[s["start"], s["end"], str(s["speaker"])] for s in result["merged_segments"]]
            found[path] = {"turns": turns, "cpu_s": time.process_time() - before}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Answer ``calibrate``: a fitted cluster or levels of serving, written where they help."""

from pathlib import Path

from meshwright import api
from meshwright.calibration.calibrate_serving import ServingCalibration
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import write_whole
from meshwright.present.runs.calibration import render_calibration
from meshwright.present.runs.serving_calibration import render_serving_calibration


def calibrated(runs: str | Path, on: str | None, output: str | Path | None) -> Answer:
    """Return the answer; ``output`` is written if calibration reduces the error."""
    found = api.calibrate(runs, on=on)
    written = None if output is None or not found.helps else str(output)
    if written:
        text = found.file_text() if isinstance(found, ServingCalibration) else api.cluster_file(found)
        write_whole(Path(written), text)
    render = render_serving_calibration if isinstance(found, ServingCalibration) else render_calibration
    return Answer(found.to_json(), lambda data: render(data, written), found.helps)

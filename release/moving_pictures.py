"""Makes the moving pictures from the frames that the browser tests took: the last step of ``make pictures``.

A scene is a folder of frames named by their order and how long each is shown: ``03-2500.png``. WebP without loss keeps
text sharp, and what does not change between two frames costs nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
FRAMES = ROOT / "tests" / "output" / "vscode" / "scenes"
PICTURES = ROOT / "vscode-extension" / "media" / "moving"
MAXIMUM_BYTES = 1_000_000


def make(scene: Path, picture: Path) -> int:
    """Make the moving picture of one scene; return its size in bytes."""
    paths = sorted(scene.glob("*.png"))
    frames = [Image.open(path).convert("RGB") for path in paths]
    durations = [int(path.stem.partition("-")[2]) for path in paths]
    picture.parent.mkdir(parents=True, exist_ok=True)
    others = {"save_all": True, "append_images": frames[1:], "duration": durations, "loop": 0}
    frames[0].save(picture, lossless=True, quality=100, method=6, **others)
    return picture.stat().st_size


def main() -> int:
    """Make all; 1 if there are no frames, or one is too large to be shown on a page."""
    scenes = sorted(path for path in FRAMES.glob("*/*") if path.is_dir())
    too_large = 0
    for scene in scenes:
        picture = PICTURES / f"{scene.name}-{scene.parent.name}.webp"
        size = make(scene, picture)
        too_large += size > MAXIMUM_BYTES
        sys.stdout.write(f"{picture.name}: {size / 1000:.0f} kB\n")
    return 1 if too_large or not scenes else 0


if __name__ == "__main__":
    sys.exit(main())

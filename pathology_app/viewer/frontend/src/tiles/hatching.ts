// Diagonal stripes that tile seamlessly.

const SIDE = 12;

/** Canvas for a pattern: stripes of one colour on a background of another. */
export function hatching(stripes: string, ground: string): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [SIDE, SIDE];
  const context = canvas.getContext("2d")!;
  context.fillStyle = ground;
  context.fillRect(0, 0, SIDE, SIDE);
  context.strokeStyle = stripes;
  context.lineWidth = 2;
  for (const shift of [-SIDE, 0, SIDE]) {
    context.beginPath();
    context.moveTo(shift - 1, SIDE + 1);
    context.lineTo(shift + SIDE + 1, -1);
    context.stroke();
  }
  return canvas;
}

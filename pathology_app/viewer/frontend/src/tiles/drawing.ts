// Draws a tile's parts on one canvas. Damaged parts are hatched: a coarser level in their place would look like tissue.
import { hatching } from "./hatching";
import { type Part, partsOf } from "./body";
import type { TileColours } from "./colours";

export interface DrawnTile {
  context: CanvasRenderingContext2D;
  hasHoles: boolean;
}

/** Draw a tile of `width` by `height` pixels. The padding of chunks at the slide's edge is cut off. */
export async function drawTile(body: ArrayBuffer, width: number, height: number, colours: TileColours): Promise<DrawnTile> {
  const images = await Promise.all(partsOf(body).map(async (part) => ({ part, image: await decoded(part) })));
  await colours.ready;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", colours.canvasSettings)!;
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, width, height);
  for (const { part, image } of images) {
    if (image) {
      // At half size, smoothing makes each pixel the mean of four.
      context.drawImage(image, part.x, part.y, image.width / part.shrink, image.height / part.shrink);
      image.close();
    }
  }
  const holes = images.filter(({ image }) => image === null).map(({ part }) => part);
  colours.add(context, () => hatch(context, holes));
  return { context, hasHoles: holes.length > 0 };
}

function hatch(context: CanvasRenderingContext2D, holes: Part[]): void {
  for (const { x, y, width, height } of holes) {
    context.fillStyle = context.createPattern(hatching("#5f6570", "#d5d9e0"), "repeat")!;
    context.fillRect(x, y, width, height);
  }
}

/** Pixels of the part, without colour conversion; null if it cannot be decoded. */
async function decoded({ jpeg }: Part): Promise<ImageBitmap | null> {
  if (!jpeg) {
    return null;
  }
  try {
    return await createImageBitmap(new Blob([jpeg], { type: "image/jpeg" }), { colorSpaceConversion: "none" });
  } catch {
    return null; // a corrupt stream in a store without checksums
  }
}

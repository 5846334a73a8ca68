// A tile's parts on one canvas. What is damaged is hatched: a coarser level drawn in its place would look like tissue.
import { hatching } from "./hatching";
import { type Part, partsOf } from "./tile_body";
import type { TileColours } from "./tile_colours";

export interface DrawnTile {
  context: CanvasRenderingContext2D;
  hasHoles: boolean;
}

/** Draw a tile of `width` by `height` pixels. Chunks at a slide's edge are padded: that is cut off here. */
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
      // At half its size, smoothing makes each pixel the mean of four.
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

/** The part's pixels as they stand in the stream; null where nothing can be made of it. */
async function decoded({ jpeg }: Part): Promise<ImageBitmap | null> {
  if (!jpeg) {
    return null;
  }
  try {
    return await createImageBitmap(new Blob([jpeg], { type: "image/jpeg" }), { colorSpaceConversion: "none" });
  } catch {
    return null; // a stream of a store without checksums: it says of itself that it is no image
  }
}

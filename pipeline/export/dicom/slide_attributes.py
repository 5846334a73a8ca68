"""Attributes of a store as VL Whole Slide Microscopy Image (DICOM PS3.3, A.32.8): one instance per level, TILED_FULL.

A store knows nothing of a patient, a date or a serial number. Attributes that may be empty are; those that may not say
"unknown", or a date of 1900. UIDs follow from the SHA-256 of the slide's source, so that two exports are equal and
belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO

from PIL import ImageCms
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import UID, VLWholeSlideMicroscopyImageStorage, generate_uid

from pipeline.export.dicom.frame_kind import FrameKind
from pipeline.export.dicom.texts import LONG_TEXT, plain_text
from pipeline.store.format.layout import ArraySpec
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.colour import to_srgb

UNKNOWN, NO_DATE_TIME = "unknown", "19000101000000"
# As values, because pydicom's dictionary of codes takes half a second to import.
_BRIGHTFIELD = ("111744", "DCM", "Brightfield illumination")
_FULL_SPECTRUM = ("414298005", "SCT", "Full Spectrum")
_MICROSCOPE_SLIDE = ("433466003", "SCT", "Microscope slide")
_DATE_IN_PROFILE = slice(24, 36)
_UID_ROOT = "2.25."
_MM = 1e-3
"""Millimetres in a micrometre."""
_SECTION_UM = 1.0
"""Thickness that is stated where none is known, as highdicom and wsidicom do."""


@dataclass(frozen=True)
class Loss:
    """Compression with loss that a level's pixels have gone through."""

    method: str
    """ISO_10918_1 or ISO_15444_1."""
    ratio: float
    """Bytes of pixels over bytes stored."""


@dataclass(frozen=True)
class LevelImage:
    """One level to be written."""

    level: int
    downsample: float
    spec: ArraySpec
    frames: FrameKind
    loss: Loss | None


def level_dataset(reader: StoreReader, image: LevelImage) -> Dataset:
    """Everything but the frames.

    Raises:
        UnreadableError: the slide's colour profile is damaged.
    """
    dataset = Dataset()
    uid = _Uids(reader)
    _patient_and_study(dataset, uid)
    _equipment(dataset, reader)
    _matrix(dataset, reader, image)
    _pixels(dataset, image)
    dataset.FrameOfReferenceUID, dataset.PositionReferenceIndicator = uid.of("frame of reference"), "SLIDE_CORNER"
    dataset.PyramidUID = uid.of("pyramid")
    dataset.DimensionOrganizationType = "TILED_FULL"
    dataset.DimensionOrganizationSequence = [_dataset(DimensionOrganizationUID=uid.of("dimensions"))]
    dataset.NumberOfOpticalPaths = 1
    dataset.OpticalPathSequence = [_optical_path(reader)]
    _specimen(dataset, reader.slide_id, uid)
    dataset.SOPClassUID = VLWholeSlideMicroscopyImageStorage
    dataset.SOPInstanceUID = uid.of(f"level {image.level}", repr(image.frames), repr(image.spec))
    dataset.InstanceNumber = image.level + 1
    dataset.SpecificCharacterSet = "ISO_IR 192"
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = UID(image.frames.transfer_syntax)
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    return dataset


class _Uids:
    """UIDs of one slide's objects."""

    def __init__(self, reader: StoreReader) -> None:
        self._of_slide = (reader.source_sha256, str(reader.attributes.source.series), reader.slide_id)

    def of(self, *what: str) -> str:
        return str(generate_uid(prefix=_UID_ROOT, entropy_srcs=[*self._of_slide, *what]))


def _patient_and_study(dataset: Dataset, uid: _Uids) -> None:
    for keyword in ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime"):
        setattr(dataset, keyword, "")
    for keyword in ("AccessionNumber", "ReferringPhysicianName", "StudyID"):
        setattr(dataset, keyword, "")
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = uid.of("study"), uid.of("series")
    dataset.Modality, dataset.SeriesNumber = "SM", 1
    dataset.AcquisitionDateTime = NO_DATE_TIME
    dataset.ContentDate, dataset.ContentTime = NO_DATE_TIME[:8], NO_DATE_TIME[8:]
    dataset.AcquisitionContextSequence = []
    dataset.PatientIdentityRemoved = "YES"
    dataset.DeidentificationMethod = "store without patient data (gemslide)"


def _equipment(dataset: Dataset, reader: StoreReader) -> None:
    dataset.Manufacturer, dataset.DeviceSerialNumber = UNKNOWN, UNKNOWN
    dataset.ManufacturerModelName = plain_text(reader.attributes.scanner_model or "", LONG_TEXT) or UNKNOWN
    dataset.SoftwareVersions = f"gemslide {version('gemslide')}"


def _matrix(dataset: Dataset, reader: StoreReader, image: LevelImage) -> None:
    """Geometry: sizes in pixels and millimetres, and the place on the glass, which a store does not know."""
    spec, mpp = image.spec, reader.mpp0 * image.downsample
    value = "ORIGINAL" if image.level == 0 else "DERIVED"
    dataset.ImageType = [value, "PRIMARY", "VOLUME", "NONE" if image.level == 0 else "RESAMPLED"]
    dataset.TotalPixelMatrixColumns, dataset.TotalPixelMatrixRows = spec.width_px, spec.height_px
    dataset.TotalPixelMatrixFocalPlanes = 1
    dataset.Columns = dataset.Rows = spec.chunk_px
    dataset.NumberOfFrames = spec.rows * spec.columns
    dataset.ImagedVolumeWidth = _decimal(spec.width_px * mpp * _MM)
    dataset.ImagedVolumeHeight = _decimal(spec.height_px * mpp * _MM)
    dataset.ImagedVolumeDepth = _SECTION_UM
    dataset.ImageOrientationSlide = [0, -1, 0, -1, 0, 0]
    origin: dict[str, float] = {"XOffsetInSlideCoordinateSystem": 0, "YOffsetInSlideCoordinateSystem": 0}
    if reader.plane_um is not None:
        origin["ZOffsetInSlideCoordinateSystem"] = _decimal(reader.plane_um)
    dataset.TotalPixelMatrixOriginSequence = [_dataset(**origin)]
    measures = _dataset(PixelSpacing=[_decimal(mpp * _MM)] * 2, SliceThickness=_decimal(_SECTION_UM * _MM))
    shared = _dataset(
        PixelMeasuresSequence=[measures],
        WholeSlideMicroscopyImageFrameTypeSequence=[_dataset(FrameType=list(dataset.ImageType))],
        OpticalPathIdentificationSequence=[_dataset(OpticalPathIdentifier="1")],
    )
    dataset.SharedFunctionalGroupsSequence = [shared]
    dataset.FocusMethod, dataset.ExtendedDepthOfField = "AUTO", "NO"
    dataset.VolumetricProperties, dataset.SpecimenLabelInImage, dataset.BurnedInAnnotation = "VOLUME", "NO", "NO"


def _decimal(value: float) -> float:
    """A number that fits into a decimal string of 16 characters, to nine digits."""
    return float(f"{value:.9g}")


def _pixels(dataset: Dataset, image: LevelImage) -> None:
    dataset.SamplesPerPixel, dataset.PlanarConfiguration = 3, 0
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 8, 8, 7, 0
    dataset.PhotometricInterpretation = image.frames.photometric
    dataset.LossyImageCompression = "01" if image.loss else "00"
    if image.loss:
        dataset.LossyImageCompressionMethod = image.loss.method
        dataset.LossyImageCompressionRatio = round(image.loss.ratio, 3)


def _optical_path(reader: StoreReader) -> Dataset:
    path = _dataset(
        OpticalPathIdentifier="1",
        IlluminationTypeCodeSequence=[_code(*_BRIGHTFIELD)],
        IlluminationColorCodeSequence=[_code(*_FULL_SPECTRUM)],
        ICCProfile=_even(_profile(reader)),
    )
    if power := reader.attributes.objective_power:
        path.ObjectiveLensPower = _decimal(power)
    return path


def _profile(reader: StoreReader) -> bytes:
    """The slide's colour profile, or sRGB.

    Raises:
        UnreadableError: no colours can be computed with the slide's.
    """
    if reader.icc is None:
        return _srgb()
    to_srgb(reader.icc)
    return reader.icc


def _srgb() -> bytes:
    """sRGB, which is what a viewer takes colours without a profile for; without the date of its making."""
    stream = BytesIO()
    stream.write(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile = bytearray(stream.getvalue())
    profile[_DATE_IN_PROFILE] = bytes(len(profile[_DATE_IN_PROFILE]))
    return bytes(profile)


def _even(value: bytes) -> bytes:
    return value + b"\0" * (len(value) % 2)


def _specimen(dataset: Dataset, slide_id: str, uid: _Uids) -> None:
    dataset.ContainerIdentifier = slide_id
    dataset.IssuerOfTheContainerIdentifierSequence = []
    dataset.ContainerTypeCodeSequence = [_code(*_MICROSCOPE_SLIDE)]
    specimen = _dataset(
        SpecimenIdentifier=slide_id,
        SpecimenUID=uid.of("specimen"),
        IssuerOfTheSpecimenIdentifierSequence=[],
        SpecimenPreparationSequence=[],
    )
    dataset.SpecimenDescriptionSequence = [specimen]


def _code(value: str, scheme: str, meaning: str) -> Dataset:
    return _dataset(CodeValue=value, CodingSchemeDesignator=scheme, CodeMeaning=meaning)


def _dataset(**values: object) -> Dataset:
    dataset = Dataset()
    for keyword, value in values.items():
        setattr(dataset, keyword, value)
    return dataset

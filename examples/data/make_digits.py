"""Writes digits_images.npy (uint8 [1797, 64], values 0 to 16) and digits_labels.npy (int32 [1797]).

The data: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
Learning Repository, 1998 (its test part, as scikit-learn carries it), under CC BY 4.0.

    pip install scikit-learn && python make_digits.py
"""

import pathlib

import numpy as np
from sklearn.datasets import load_digits

here = pathlib.Path(__file__).parent
digits = load_digits()
np.save(here / "digits_images.npy", digits.data.astype(np.uint8))
np.save(here / "digits_labels.npy", digits.target.astype(np.int32))

"""FGD's benchmark: how much of a cluster placers give away before pods do not fit any more."""

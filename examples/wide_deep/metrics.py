"""The AUC of one batch."""

import keras


@keras.saving.register_keras_serializable(package="wide_deep")
class BatchAUC(keras.metrics.AUC):
    """AUC of the last batch alone: what online training watches."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Forgets the batches before and counts this one."""
        self.reset_state()
        return super().update_state(y_true, y_pred, sample_weight)

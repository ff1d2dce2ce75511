package main

import (
	"context"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	training "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// kubeflow is the training operator: jobs of one kind per framework.
var kubeflow = part{
	scheme: []func(*runtime.Scheme) error{
		kubeflowv1.AddToScheme, volcano.AddToScheme, schedulerplugins.AddToScheme,
	},
	setup: func(_ context.Context, manager ctrl.Manager) error {
		// Its own program has these as flags: init containers of workers and launchers need them.
		given := &config.Config
		given.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
		given.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
		given.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
		given.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault
		for _, setup := range training.SupportedSchemeReconciler {
			if err := setup(manager, common.GenNonGangSchedulerSetupFunc(), 1); err != nil {
				return err
			}
		}
		return nil
	},
}

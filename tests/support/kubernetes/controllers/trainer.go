package main

import (
	"context"
	"fmt"

	trainerapi "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	runtimes "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlpkg "sigs.k8s.io/controller-runtime/pkg/controller"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// trainer is Kubeflow Trainer: TrainJobs, of which it makes JobSets. Its webhook only refuses.
var trainer = part{
	scheme: []func(*runtime.Scheme) error{
		trainerapi.AddToScheme, jobsetapi.AddToScheme,
		schedulerplugins.AddToScheme, volcano.AddToScheme,
	},
	options: func(options *ctrl.Options) {
		options.Client = client.Options{Cache: &client.CacheOptions{Unstructured: true}}
	},
	setup: func(ctx context.Context, manager ctrl.Manager) error {
		made, err := runtimes.New(ctx, manager.GetClient(), manager.GetFieldIndexer())
		if err != nil {
			return err
		}
		if failed, err := controller.SetupControllers(manager, made, ctrlpkg.Options{}); err != nil {
			return fmt.Errorf("%s: %w", failed, err)
		}
		return nil
	},
}

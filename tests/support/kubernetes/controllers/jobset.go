package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
	"sigs.k8s.io/jobset/pkg/webhooks"
)

// jobset is JobSet with its webhooks, which set what users leave out.
var jobset = part{
	webhooks: 0,
	scheme:   []func(*runtime.Scheme) error{jobsetapi.AddToScheme},
	setup: func(ctx context.Context, manager ctrl.Manager) error {
		if err := controllers.SetupJobSetIndexes(ctx, manager.GetFieldIndexer()); err != nil {
			return err
		}
		if err := controllers.SetupPodIndexes(ctx, manager.GetFieldIndexer()); err != nil {
			return err
		}
		client, scheme := manager.GetClient(), manager.GetScheme()
		sets := controllers.NewJobSetReconciler(client, scheme, manager.GetEventRecorderFor("jobset"))
		if err := sets.SetupWithManager(manager); err != nil {
			return err
		}
		pods := controllers.NewPodReconciler(client, scheme, manager.GetEventRecorderFor("pod"))
		if err := pods.SetupWithManager(manager); err != nil {
			return err
		}
		defaults, err := webhooks.NewJobSetWebhook(client)
		if err != nil {
			return err
		}
		if err := defaults.SetupWebhookWithManager(manager); err != nil {
			return err
		}
		return webhooks.NewPodWebhook(client).SetupWebhookWithManager(manager)
	},
}

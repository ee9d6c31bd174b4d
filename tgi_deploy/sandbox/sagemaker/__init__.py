"""What moto's SageMaker lacks: endpoints that take time, run containers, fail, update, scale and answer."""

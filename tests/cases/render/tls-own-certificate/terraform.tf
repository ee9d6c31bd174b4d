# tgi-deploy does not track what this creates: you apply and destroy it.
# 'tgi-deploy render --as user-data' prints user_data_base64 as text.
variable "vpc_id" {
  type = string
}

variable "subnet_id" {
  type        = string
  description = "A subnet of the VPC with a route to the internet, in a zone that has g6e.xlarge"
}

variable "allowed_cidr" {
  type        = string
  description = "The network that may call the endpoint, such as 203.0.113.7/32"
}

data "aws_ssm_parameter" "image" {
  name = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
}

resource "aws_security_group" "endpoint" {
  name_prefix = "tgi-deploy-example-"
  description = "Callers of example"
  vpc_id      = var.vpc_id

  ingress {
    protocol    = "tcp"
    from_port   = 8080
    to_port     = 8080
    cidr_blocks = [var.allowed_cidr]
  }

  egress {
    protocol    = "-1"
    from_port   = 0
    to_port     = 0
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_instance" "machine" {
  ami                                  = data.aws_ssm_parameter.image.insecure_value
  instance_type                        = "g6e.xlarge"
  subnet_id                            = var.subnet_id
  vpc_security_group_ids               = [aws_security_group.endpoint.id]
  associate_public_ip_address          = true
  iam_instance_profile                 = "key-reader"
  instance_initiated_shutdown_behavior = "terminate"
  user_data_base64                     = "BASE64(user-data.yaml)"
  user_data_replace_on_change          = true
  tags                                 = { Name = "tgi-deploy-example" }
  volume_tags                          = { Name = "tgi-deploy-example" }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "enabled"
  }

  root_block_device {
    volume_type           = "gp3"
    volume_size           = 95
    encrypted             = true
    delete_on_termination = true
  }

  # A newer machine image doesn't replace a running machine.
  lifecycle {
    ignore_changes = [ami]
  }
}

output "url" {
  value = "https://${aws_instance.machine.public_ip}:8080"
}
